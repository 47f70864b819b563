import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Moves records from one topic to another, exactly once. Says "committed n" after each transaction
 * and ends when all is moved. Crashes on any error; the caller starts it again.
 *
 * java MoveRecords.java bootstrap source target total recordsPerTransaction classic|consumer
 */
public class MoveRecords {
    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        String source = arguments[1];
        String target = arguments[2];
        long total = Long.parseLong(arguments[3]);

        Properties reading = new Properties();
        reading.put("bootstrap.servers", bootstrap);
        reading.put("group.id", "move-" + source);
        reading.put("group.instance.id", "the-one");
        reading.put("group.protocol", arguments[5]);
        reading.put("enable.auto.commit", "false");
        reading.put("auto.offset.reset", "earliest");
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", arguments[4]);
        reading.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        reading.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");

        Properties writing = new Properties();
        writing.put("bootstrap.servers", bootstrap);
        writing.put("transactional.id", "move-" + source);
        writing.put("transaction.timeout.ms", "10000");
        writing.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        writing.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");

        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading);
                KafkaProducer<String, String> producer = new KafkaProducer<>(writing)) {
            producer.initTransactions();
            TreeSet<TopicPartition> everywhere = new TreeSet<>(
                (one, other) -> Integer.compare(one.partition(), other.partition()));
            for (PartitionInfo partition : consumer.partitionsFor(source)) {
                everywhere.add(new TopicPartition(source, partition.partition()));
            }
            consumer.subscribe(List.of(source));
            while (moved(consumer, everywhere) < total) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    move(consumer, producer, records, target);
                    System.out.println("committed " + records.count());
                }
            }
        } catch (Exception trouble) {
            System.err.println("start me again: " + trouble);
            Runtime.getRuntime().halt(1);
        }
    }

    private static void move(
            KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> records,
            String target) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
            ends.put(
                new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        producer.commitTransaction();
    }

    private static long moved(KafkaConsumer<String, String> consumer, TreeSet<TopicPartition> everywhere) {
        long sum = 0;
        for (OffsetAndMetadata committed : consumer.committed(everywhere).values()) {
            sum += committed == null ? 0 : committed.offset();
        }
        return sum;
    }
}
