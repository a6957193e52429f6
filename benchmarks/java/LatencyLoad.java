import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * From `send` to the listener, with the official client on both sides, in one process and so by one clock.
 *
 * <p>Arguments: name server, topic, messages a second, seconds of warm-up, seconds that count. Sends go out when they are
 * due and not when the one before was answered. Prints count, failed sends, and p50, p90, p99, p99.9 and the longest in
 * microseconds.
 */
public final class LatencyLoad {
    public static void main(String[] arguments) throws Exception {
        long step = 1_000_000_000L / Long.parseLong(arguments[2]);
        int warmUp = (int) (Long.parseLong(arguments[3]) * 1_000_000_000L / step);
        int total = warmUp + (int) (Long.parseLong(arguments[4]) * 1_000_000_000L / step);
        long[] took = new long[total];
        CountDownLatch all = new CountDownLatch(total);
        AtomicInteger failed = new AtomicInteger();
        DefaultMQProducer producer = new DefaultMQProducer("latency");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        producer.send(new Message(arguments[1], new byte[1024]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("latency_" + System.nanoTime());
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(arguments[1], "latency");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                took[Integer.parseInt(message.getUserProperty("number"))] =
                        now - Long.parseLong(message.getUserProperty("due"));
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread.sleep(3000);
        SendCallback done = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {}

            @Override
            public void onException(Throwable error) {
                failed.incrementAndGet();
                all.countDown();
            }
        };
        byte[] body = new byte[1024];
        long began = System.nanoTime();
        for (int number = 0; number < total; number++) {
            long due = began + number * step;
            long left;
            while ((left = due - System.nanoTime()) > 0) {
                LockSupport.parkNanos(left);
            }
            Message message = new Message(arguments[1], "latency", body);
            message.putUserProperty("number", String.valueOf(number));
            message.putUserProperty("due", String.valueOf(due));
            producer.send(message, done);
        }
        all.await(30, java.util.concurrent.TimeUnit.SECONDS);
        long[] counted = Arrays.copyOfRange(took, warmUp, total);
        Arrays.sort(counted);
        StringBuilder line = new StringBuilder((counted.length) + " " + failed.get());
        for (double part : new double[] {0.5, 0.9, 0.99, 0.999, 1}) {
            line.append(' ').append(counted[Math.min(counted.length - 1, (int) (part * counted.length))] / 1000);
        }
        System.out.println(line);
        Runtime.getRuntime().halt(0);
    }
}
