// Applies the chosen theme before the first paint. A classic script, because modules run later.
{
  const theme = localStorage.getItem("penstock.theme");
  if (theme === "light" || theme === "dark") {
    document.documentElement.style.colorScheme = theme;
  }
}
