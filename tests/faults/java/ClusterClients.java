import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Clients that run until a line arrives on standard input, and write each operation with its outcome
 * as a line of JSON, as `tests/support/history` reads it: an idempotent producer, a transactional
 * producer, a program that moves records exactly once, and two members of a group.
 *
 * java ClusterClients.java bootstrap writeTo transactionsTo moveFrom moveTo
 */
public class ClusterClients {
    private static final int PARTITIONS = 3;
    private static final String MILLIS = "5000";
    private static final String STRING = "org.apache.kafka.common.serialization.String";
    private static volatile boolean isStopping = false;
    private static String bootstrap;

    interface Work {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        List<Thread> threads = new ArrayList<>();
        threads.add(started("java-writer", () -> write(arguments[1])));
        threads.add(started("java-transactions", () -> writeTransactions(arguments[2])));
        threads.add(started("java-mover", () -> move(arguments[3], arguments[4])));
        threads.add(started("java-member-1", () -> consume("java-member-1", arguments[1], false)));
        threads.add(started("java-member-2", () -> consume("java-member-2", arguments[1], true)));
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        isStopping = true;
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("{\"kind\": \"end\"}");
    }

    private static Thread started(String name, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                report(name, "error", error);
            }
        }, name);
        thread.start();
        return thread;
    }

    // An idempotent producer: every record is acknowledged in the end.

    private static void write(String topic) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(writing(null))) {
            for (int number = 0; !isStopping; number++) {
                send(producer, "java-writer", topic, number % PARTITIONS, "java-" + number, null);
                Thread.sleep(8);
            }
        }
    }

    private static void send(
            KafkaProducer<String, String> producer, String name, String topic, int partition,
            String value, String transaction) {
        producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
            if (error != null && transaction == null) {
                report(name, "error", error);
            }
            produced(name, topic, partition, value, error == null, error == null ? metadata.offset() : -1,
                transaction);
        });
    }

    // A transactional producer: every fifth transaction is aborted on purpose.

    private static void writeTransactions(String topic) throws Exception {
        String name = "java-transactions";
        KafkaProducer<String, String> producer = transactional(name);
        for (int number = 0; !isStopping; number++) {
            String transaction = name + "-" + number;
            boolean wantsCommit = number % 5 != 4;
            try {
                producer.beginTransaction();
                for (int index = 0; index < PARTITIONS * 2; index++) {
                    send(producer, name, topic, index % PARTITIONS, transaction + "." + index, transaction);
                }
                if (wantsCommit) {
                    commit(producer);
                } else {
                    producer.flush();
                    abort(producer);
                }
                ended(transaction, wantsCommit, true);
            } catch (KafkaException error) {
                producer = recovered(producer, name, transaction, error);
            }
            Thread.sleep(30);
        }
        producer.close();
    }

    /** After an error: the transaction is aborted, or its end stays unknown and another producer continues. */
    private static KafkaProducer<String, String> recovered(
            KafkaProducer<String, String> producer, String name, String transaction, KafkaException error)
            throws Exception {
        try {
            abort(producer);
            ended(transaction, false, true);
            report(name, "aborted", error);
            return producer;
        } catch (KafkaException fatal) {
            ended(transaction, true, false);
            report(name, "replaced", error);
            producer.close(Duration.ZERO);
            return transactional(name);
        }
    }

    private static KafkaProducer<String, String> transactional(String name) throws Exception {
        KafkaProducer<String, String> producer = new KafkaProducer<>(writing(name));
        retried(producer::initTransactions);
        return producer;
    }

    private static void commit(KafkaProducer<String, String> producer) throws Exception {
        retried(producer::commitTransaction);
    }

    private static void abort(KafkaProducer<String, String> producer) throws Exception {
        retried(producer::abortTransaction);
    }

    private static void retried(Work work) throws Exception {
        while (true) {
            try {
                work.run();
                return;
            } catch (TimeoutException slow) {
                Thread.sleep(50);
            }
        }
    }

    // Records moved exactly once: outputs and offsets are one transaction.

    private static void move(String source, String target) throws Exception {
        long giveUpAt = Long.MAX_VALUE;
        int attempt = 0;
        boolean isDone = false;
        while (!isDone) {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading("java-movers"));
                    KafkaProducer<String, String> producer = transactional("java-mover")) {
                consumer.subscribe(List.of(source));
                while (!isDone) {
                    ConsumerRecords<String, String> records = retriedPoll(consumer);
                    if (!records.isEmpty()) {
                        moveOnce(consumer, producer, records, target, "java-mover-" + attempt++);
                    }
                    if (isStopping && giveUpAt == Long.MAX_VALUE) {
                        giveUpAt = System.currentTimeMillis() + 120_000;
                    }
                    isDone = isStopping && records.isEmpty() && isAtEnd(consumer);
                    if (System.currentTimeMillis() > giveUpAt) {
                        throw new IllegalStateException("the mover does not reach the end");
                    }
                }
            } catch (KafkaException error) {
                report("java-mover", "replaced", error);
            }
        }
    }

    private static ConsumerRecords<String, String> retriedPoll(KafkaConsumer<String, String> consumer) {
        try {
            return consumer.poll(Duration.ofMillis(200));
        } catch (RetriableException slow) {
            return ConsumerRecords.empty();
        }
    }

    private static void moveOnce(
            KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> records, String target, String transaction)
            throws Exception {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        boolean wasEnding = false;
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                send(producer, "java-mover", target, record.partition(), record.value() + "@" + transaction,
                    transaction);
                ends.put(new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            wasEnding = true;
            commit(producer);
            ended(transaction, true, true);
        } catch (KafkaException error) {
            ended(transaction, wasEnding, false);
            throw error; // with another consumer and producer: positions are those of the committed offsets
        }
    }

    private static boolean isAtEnd(KafkaConsumer<String, String> consumer) {
        Set<TopicPartition> assigned = consumer.assignment();
        try {
            Map<TopicPartition, Long> ends = consumer.endOffsets(assigned);
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(assigned);
            return assigned.size() == PARTITIONS && ends.entrySet().stream().allMatch(end -> {
                OffsetAndMetadata at = committed.get(end.getKey());
                return end.getValue() == (at == null ? 0 : at.offset());
            });
        } catch (RetriableException slow) {
            return false;
        }
    }

    // Members of a group. One of them leaves and returns, so that partitions have new owners.

    private static void consume(String name, String topic, boolean leaves) throws Exception {
        while (!isStopping) {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading("java-group"))) {
                consumer.subscribe(List.of(topic), new Member(name, consumer));
                long leaveAt = System.currentTimeMillis() + (leaves ? 7_000 : Integer.MAX_VALUE);
                while (!isStopping && System.currentTimeMillis() < leaveAt) {
                    handle(name, consumer, retriedPoll(consumer));
                }
            } catch (KafkaException error) {
                report(name, "replaced", error);
            }
        }
    }

    private static void handle(
            String name, KafkaConsumer<String, String> consumer, ConsumerRecords<String, String> records) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            line("Read", "reader", name, "topic", record.topic(), "partition", record.partition(), "offset",
                record.offset(), "value", record.value());
            ends.put(new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        if (ends.isEmpty()) {
            return;
        }
        int generation = consumer.groupMetadata().generationId();
        String outcome = "unknown";
        try {
            consumer.commitSync(ends);
            outcome = "acknowledged";
        } catch (KafkaException refused) {
            report(name, "uncommitted", refused);
        }
        for (Map.Entry<TopicPartition, OffsetAndMetadata> end : ends.entrySet()) {
            line("Committed", "group", "java-group", "generation", generation, "member", name, "topic",
                end.getKey().topic(), "partition", end.getKey().partition(), "offset",
                end.getValue().offset(), "outcome", outcome);
        }
    }

    private record Member(String name, KafkaConsumer<String, String> consumer)
            implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            int generation = consumer.groupMetadata().generationId();
            for (TopicPartition partition : partitions) {
                line("Owned", "group", "java-group", "generation", generation, "member", name, "topic",
                    partition.topic(), "partition", partition.partition());
            }
            try {
                consumer.committed(Set.copyOf(partitions)).forEach((partition, committed) ->
                    line("Fetched", "group", "java-group", "generation", generation, "member", name,
                        "topic", partition.topic(), "partition", partition.partition(), "offset",
                        committed == null ? -1 : committed.offset()));
            } catch (KafkaException slow) {
                report(name, "unfetched", slow);
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
    }

    // Settings and lines.

    private static Properties writing(String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", MILLIS);
        settings.put("max.block.ms", "60000");
        settings.put("key.serializer", STRING + "Serializer");
        settings.put("value.serializer", STRING + "Serializer");
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return settings;
    }

    private static Properties reading(String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", MILLIS);
        settings.put("group.id", group);
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "1000");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("key.deserializer", STRING + "Deserializer");
        settings.put("value.deserializer", STRING + "Deserializer");
        return settings;
    }

    private static void produced(
            String producer, String topic, int partition, String value, boolean isKnown, long offset,
            String transaction) {
        String outcome = isKnown ? "acknowledged" : "unknown";
        if (transaction == null) {
            line("Produced", "producer", producer, "topic", topic, "partition", partition, "value", value,
                "outcome", outcome, "offset", offset);
        } else {
            line("Produced", "producer", producer, "topic", topic, "partition", partition, "value", value,
                "outcome", outcome, "offset", offset, "transaction", transaction);
        }
    }

    private static void ended(String transaction, boolean isCommit, boolean isKnown) {
        line("Transaction", "name", transaction, "is_commit", isCommit, "outcome",
            isKnown ? "acknowledged" : "unknown");
    }

    private static void report(String client, String what, Throwable error) {
        line("note", "client", client, "what", what, "text", error.toString().replaceAll("[\"\\\\\\s]+", " "));
    }

    private static void line(String kind, Object... fields) {
        StringBuilder text = new StringBuilder("{\"kind\": \"" + kind + "\"");
        for (int index = 0; index < fields.length; index += 2) {
            Object value = fields[index + 1];
            String shown = value instanceof String ? "\"" + value + "\"" : value.toString();
            text.append(", \"").append(fields[index]).append("\": ").append(shown);
        }
        synchronized (System.out) {
            System.out.println(text.append("}"));
        }
    }
}
