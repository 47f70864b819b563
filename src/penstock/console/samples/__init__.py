"""What pages show of the cluster as a whole, sampled once for all of them."""
