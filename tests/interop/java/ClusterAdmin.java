import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Java's admin client on a cluster of three, through one of its brokers: one line per operation.
 *
 * java ClusterAdmin.java bootstrap topic
 */
public class ClusterAdmin {
    private static Admin admin;
    private static String topic;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        topic = arguments[1];
        try (Admin opened = Admin.create(settings)) {
            admin = opened;
            say("brokers", admin.describeCluster().nodes().get().stream().map(Node::id).sorted().toList());
            QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
            say("voters", quorum.voters().stream().map(QuorumInfo.ReplicaState::replicaId).sorted().toList());
            changeTopic();
            changeRecords(arguments[0]);
            say("logs", admin.describeLogDirs(List.of(1, 2, 3)).allDescriptions().get().values().stream()
                .filter(folders -> folders.values().stream().anyMatch(folder ->
                    folder.replicaInfos().containsKey(new TopicPartition(topic, 0)))).count());
            elect();
            admin.deleteTopics(List.of(topic)).all().get();
            say("deleted", settled(true, () -> !admin.listTopics().names().get().contains(topic)));
        }
    }

    private static void changeTopic() throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, Optional.of(2), Optional.empty()))).all().get();
        say("replicas", settled(3, () -> described().partitions().get(0).replicas().size()));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        say("partitions", settled(3, () -> described().partitions().size()));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Collection<AlterConfigOp> change =
            List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, change)).all().get();
        say("retention", settled("3600000", () -> admin.describeConfigs(List.of(resource)).all().get()
            .get(resource).get("retention.ms").value()));
    }

    private static void changeRecords(String bootstrap) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; number < 10; number++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "" + number)).get();
            }
        }
        TopicPartition first = new TopicPartition(topic, 0);
        admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(4))).all().get();
        say("start", admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset());
        say("end", admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get().get(first).offset());
    }

    private static void elect() throws Exception {
        Set<TopicPartition> all = described().partitions().stream()
            .map(partition -> new TopicPartition(topic, partition.partition())).collect(Collectors.toSet());
        try {
            admin.electLeaders(ElectionType.PREFERRED, all).all().get(30, TimeUnit.SECONDS);
            say("election", "done");
        } catch (ExecutionException refused) {
            say("election", refused.getCause().getClass().getSimpleName());
        }
        say("reassignments", admin.listPartitionReassignments().reassignments().get().size());
    }

    /** What is seen in the end: the client asks any broker, and one may be behind the one that answered. */
    private static <T> T settled(T expected, Callable<T> seen) throws Exception {
        for (int attempt = 0; attempt < 100; attempt++) {
            try {
                if (expected.equals(seen.call())) {
                    return expected;
                }
            } catch (ExecutionException unknown) {
                // a broker that has not heard of the topic
            }
            Thread.sleep(100);
        }
        return seen.call();
    }

    private static TopicDescription described() throws Exception {
        return admin.describeTopics(new TreeSet<>(Set.of(topic))).allTopicNames().get().get(topic);
    }

    private static void say(String what, Object value) {
        System.out.println(what + " " + value);
    }
}
