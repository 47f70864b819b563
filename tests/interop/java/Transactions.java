import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;

/** Transactions of the Java client, each step reported on standard output. */
public class Transactions {
    private static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            commitAndAbort();
            fence();
            describe(admin);
            abortByHand(admin);
        }
    }

    private static KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(settings);
    }

    private static void commitAndAbort() {
        try (KafkaProducer<String, String> producer = producer("plain")) {
            producer.initTransactions();
            for (int number = 0; number < 50; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 3; partition++) {
                    producer.send(new ProducerRecord<>("a", partition, null, "" + number));
                }
                if (number % 5 == 4) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        System.out.println("committed 40");
    }

    private static void fence() throws Exception {
        try (KafkaProducer<String, String> first = producer("fenced");
                KafkaProducer<String, String> second = producer("fenced")) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>("a", 0, null, "1001")).get();
            second.initTransactions();
            second.beginTransaction();
            second.send(new ProducerRecord<>("a", 0, null, "1002"));
            second.commitTransaction();
            try {
                first.commitTransaction();
                System.out.println("not fenced");
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                System.out.println("fenced");
            }
        }
    }

    private static void describe(Admin admin) throws Exception {
        TransactionDescription described =
            admin.describeTransactions(List.of("plain")).description("plain").get();
        System.out.println("plain is " + described.state());
        int listed = admin.listTransactions().all().get().size();
        System.out.println("listed " + listed);
        admin.fenceProducers(List.of("plain")).all().get();
        System.out.println(
            "plain is " + admin.describeTransactions(List.of("plain")).description("plain").get().state());
    }

    private static void abortByHand(Admin admin) throws Exception {
        try (KafkaProducer<String, String> producer = producer("stuck")) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("a", 2, null, "2001")).get();
            TopicPartition where = new TopicPartition("a", 2);
            ProducerState open = null;
            for (ProducerState state :
                    admin.describeProducers(Set.of(where)).partitionResult(where).get().activeProducers()) {
                if (state.currentTransactionStartOffset().isPresent()) {
                    open = state;
                }
            }
            admin.abortTransaction(
                    new AbortTransactionSpec(
                        where,
                        open.producerId(),
                        (short) open.producerEpoch(),
                        open.coordinatorEpoch().orElse(0)))
                .all()
                .get();
            System.out.println("aborted by hand");
        }
    }
}
