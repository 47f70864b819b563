import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's own client behind a line protocol: `produce TOPIC` reads lines
 * "codec TAB key TAB value TAB name=value,..." and `consume TOPIC:COUNT ...` writes
 * "topic TAB key TAB value TAB headers". Bytes are base64, null is "-".
 */
public class Bridge {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("produce")) {
            produce(arguments[1], arguments[2]);
        } else {
            for (int i = 2; i < arguments.length; i++) {
                String[] wanted = arguments[i].split(":");
                consume(arguments[1], wanted[0], Integer.parseInt(wanted[1]));
            }
        }
    }

    static void produce(String bootstrap, String topic) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        KafkaProducer<byte[], byte[]> producer = null;
        String codec = "";
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            if (!parts[0].equals(codec)) {
                if (producer != null) {
                    producer.close();
                }
                codec = parts[0];
                producer = new KafkaProducer<>(producerSettings(bootstrap, codec));
            }
            ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(topic, 0, bytes(parts[1]), bytes(parts[2]));
            for (String header : parts[3].isEmpty() ? new String[0] : parts[3].split(",")) {
                int equals = header.indexOf('=');
                record.headers().add(header.substring(0, equals), bytes(header.substring(equals + 1)));
            }
            producer.send(record, (at, error) -> {
                if (error != null) {
                    error.printStackTrace();
                    System.exit(1);
                }
            });
        }
        producer.close();
    }

    static Properties producerSettings(String bootstrap, String codec) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "20");
        settings.put("batch.size", "500000");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return settings;
    }

    static void consume(String bootstrap, String topic, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            int taken = 0;
            long deadline = System.currentTimeMillis() + 30_000;
            StringBuilder out = new StringBuilder();
            while (taken < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    taken++;
                    List<String> headers = new ArrayList<>();
                    for (Header header : record.headers()) {
                        headers.add(header.key() + "=" + text(header.value()));
                    }
                    out.append(topic).append('\t').append(text(record.key())).append('\t');
                    out.append(text(record.value())).append('\t');
                    out.append(String.join(",", headers)).append('\n');
                }
            }
            System.out.print(out);
        }
    }

    static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    static String text(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }
}
