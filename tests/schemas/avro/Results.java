import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Base64;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/** Prints one line per input line: the canonical text of a schema, or the differences of a pair. */
public class Results {
  public static void main(String[] arguments) throws Exception {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    PrintStream output = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String result;
      try {
        result = result(line.split(" "));
      } catch (RuntimeException error) {
        result = "invalid " + error.getMessage();
      }
      output.println(Base64.getEncoder().encodeToString(result.getBytes("UTF-8")));
    }
    output.flush();
  }

  private static String result(String[] texts) throws Exception {
    Schema reader = parse(texts[0]);
    if (texts.length == 1) {
      return "text " + reader;
    }
    StringBuilder result = new StringBuilder("differences");
    for (SchemaCompatibility.Incompatibility one :
        SchemaCompatibility.checkReaderWriterCompatibility(reader, parse(texts[1]))
            .getResult()
            .getIncompatibilities()) {
      result.append('\n').append(one.getType()).append(' ').append(one.getLocation());
      result.append(' ').append(one.getMessage());
    }
    return result.toString();
  }

  private static Schema parse(String encoded) throws Exception {
    String text = new String(Base64.getDecoder().decode(encoded), "UTF-8");
    return new Schema.Parser(NameValidator.STRICT_VALIDATOR).parse(text);
  }
}
