import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes a topic from its beginning with the official client, and does nothing with the messages but count them.
 *
 * <p>Arguments: name server, topic, `push` or `lite`, how many groups, how many messages each of them shall get. Prints
 * how many all of them got and in how many milliseconds since the first came, and ends.
 */
public final class ConsumeLoad {
    private static final AtomicLong GOT = new AtomicLong();
    private static volatile long began;

    public static void main(String[] arguments) throws Exception {
        int groups = Integer.parseInt(arguments[3]);
        long wanted = groups * Long.parseLong(arguments[4]);
        for (int number = 0; number < groups; number++) {
            String group = "load_" + System.nanoTime() + "_" + number;
            if (arguments[2].equals("push")) {
                push(arguments[0], arguments[1], group);
            } else {
                lite(arguments[0], arguments[1], group);
            }
        }
        while (GOT.get() < wanted) {
            Thread.sleep(1);
        }
        System.out.println(GOT.get() + " " + (System.nanoTime() - began) / 1_000_000);
        Runtime.getRuntime().halt(0);
    }

    private static void push(String names, String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            count(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void lite(String names, String topic, String group) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(32);
        consumer.subscribe(topic, "*");
        consumer.start();
        Thread polling = new Thread(() -> {
            while (true) {
                count(consumer.poll(1000));
            }
        });
        polling.setDaemon(true);
        polling.start();
    }

    private static void count(List<MessageExt> messages) {
        if (began == 0 && !messages.isEmpty()) {
            began = System.nanoTime();
        }
        GOT.addAndGet(messages.size());
    }
}
