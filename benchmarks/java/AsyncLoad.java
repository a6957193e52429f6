import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Asynchronous sends of the official client: RocketMQ's benchmark producer of the release on Maven Central has none.
 *
 * <p>Arguments: name server, topic, threads, bytes of a body, sends under way of each thread. Prints `sent failed` of the
 * last second, every second, until it is interrupted.
 */
public final class AsyncLoad {
    private static final LongAdder SENT = new LongAdder();
    private static final LongAdder FAILED = new LongAdder();

    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("benchmark_async");
        producer.setNamesrvAddr(arguments[0]);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        byte[] body = new byte[Integer.parseInt(arguments[3])];
        java.util.Arrays.fill(body, (byte) 'x');
        producer.send(new Message(arguments[1], body));
        for (int thread = 0; thread < Integer.parseInt(arguments[2]); thread++) {
            Semaphore underWay = new Semaphore(Integer.parseInt(arguments[4]));
            Thread sender = new Thread(() -> sendForEver(producer, arguments[1], body, underWay));
            sender.setDaemon(true);
            sender.start();
        }
        while (true) {
            Thread.sleep(1000);
            System.out.println(SENT.sumThenReset() + " " + FAILED.sumThenReset());
        }
    }

    private static void sendForEver(DefaultMQProducer producer, String topic, byte[] body, Semaphore underWay) {
        SendCallback done = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                underWay.release();
                (result.getSendStatus() == SendStatus.SEND_OK ? SENT : FAILED).increment();
            }

            @Override
            public void onException(Throwable error) {
                underWay.release();
                FAILED.increment();
            }
        };
        try {
            while (true) {
                underWay.acquire();
                producer.send(new Message(topic, "TagA", body), done);
            }
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }
}
