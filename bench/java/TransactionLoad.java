import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Producers that do nothing but transactions. Prints the seconds from the first begin to the last
 * commit.
 *
 * java TransactionLoad bootstrap topic producers transactions records valueBytes partitions
 */
public class TransactionLoad {
    public static void main(String[] arguments) throws Exception {
        int producers = Integer.parseInt(arguments[2]);
        CountDownLatch ready = new CountDownLatch(producers);
        CountDownLatch go = new CountDownLatch(1);
        Thread[] threads = new Thread[producers];
        for (int number = 0; number < producers; number++) {
            String transactionalId = "java-bench-" + number;
            threads[number] = new Thread(() -> commitMany(transactionalId, arguments, ready, go));
            threads[number].start();
        }
        ready.await();
        long began = System.nanoTime();
        go.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println((System.nanoTime() - began) / 1e9);
    }

    private static void commitMany(
            String transactionalId, String[] arguments, CountDownLatch ready, CountDownLatch go) {
        int transactions = Integer.parseInt(arguments[3]);
        int records = Integer.parseInt(arguments[4]);
        byte[] value = new byte[Integer.parseInt(arguments[5])];
        int partitions = Integer.parseInt(arguments[6]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", transactionalId);
        settings.put("batch.size", "200000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            ready.countDown();
            go.await();
            for (int number = 0; number < transactions; number++) {
                producer.beginTransaction();
                for (int record = 0; record < records; record++) {
                    producer.send(new ProducerRecord<>(arguments[1], number % partitions, null, value));
                }
                producer.commitTransaction();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
