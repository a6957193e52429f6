import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** The official client signs, as accounts with different permissions: NAMESRV KEY:SECRET of a good account, of one that
 * may publish alone, and of one whose secret is wrong. Prints a line of what happened for each thing it does. */
public class SignedClient {
    private static String namesrv;

    interface Step {
        String run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        String topic = args[1];
        String group = args[2];
        RPCHook good = hook(args[3]);
        RPCHook publishOnly = hook(args[4]);
        RPCHook wrong = hook(args[5]);

        step("send", () -> send(good, topic, 10));
        step("send batch", () -> sendBatch(good, topic));
        step("send in transaction", () -> sendInTransaction(good, topic));
        step("publisher sends", () -> send(publishOnly, topic, 1));
        step("publisher sends elsewhere", () -> send(publishOnly, "signed-elsewhere", 1));
        step("wrong secret", () -> send(wrong, topic, 1));
        step("unsigned", () -> send(null, topic, 1));
        step("consume", () -> consume(good, topic, group, false));
        step("consume orderly", () -> consume(good, topic, group + "-orderly", true));
        step("lite pull", () -> litePull(good, topic, group + "-lite"));
        step("publisher consumes", () -> consumeNothing(publishOnly, topic, group));
        System.exit(0);
    }

    private static RPCHook hook(String account) {
        String[] parts = account.split(":");
        return new AclClientRPCHook(new SessionCredentials(parts[0], parts[1]));
    }

    private static void step(String name, Step step) {
        String outcome;
        try {
            outcome = step.run();
        } catch (Throwable problem) {
            Throwable cause = problem;
            while (!(cause instanceof MQBrokerException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            outcome = cause instanceof MQBrokerException
                ? "REFUSED " + ((MQBrokerException) cause).getResponseCode() + " " + cause.getMessage()
                : "FAILED " + problem;
        }
        System.out.println("STEP " + name + ": " + outcome.replace('\n', ' '));
        System.out.flush();
    }

    private static DefaultMQProducer producer(RPCHook hook) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("signed-pg", hook);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        return producer;
    }

    private static Message message(String topic, String body) {
        return new Message(topic, "tag", "key-" + body, body.getBytes(StandardCharsets.UTF_8));
    }

    private static String send(RPCHook hook, String topic, int count) throws Exception {
        DefaultMQProducer producer = producer(hook);
        try {
            for (int i = 0; i < count; i++) {
                SendStatus status = producer.send(message(topic, "m" + i), 10_000).getSendStatus();
                if (status != SendStatus.SEND_OK) {
                    return status.toString();
                }
            }
            return "OK";
        } finally {
            producer.shutdown();
        }
    }

    private static String sendBatch(RPCHook hook, String topic) throws Exception {
        DefaultMQProducer producer = producer(hook);
        try {
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                batch.add(message(topic, "b" + i));
            }
            return producer.send(batch, 10_000).getSendStatus() == SendStatus.SEND_OK ? "OK" : "not stored";
        } finally {
            producer.shutdown();
        }
    }

    private static String sendInTransaction(RPCHook hook, String topic) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(null, "signed-tpg", hook);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(UUID.randomUUID().toString());
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        try {
            return producer.sendMessageInTransaction(message(topic, "t0"), null).getSendStatus() == SendStatus.SEND_OK
                ? "OK" : "not stored";
        } finally {
            producer.shutdown();
        }
    }

    private static String consume(RPCHook hook, String topic, String group, boolean orderly) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(null, group, hook, new AllocateMessageQueueAveragely());
        Set<String> seen = ConcurrentHashMap.newKeySet();
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        if (orderly) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(one -> seen.add(new String(one.getBody(), StandardCharsets.UTF_8)));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt one : messages) {
                    if (one.getReconsumeTimes() == 0 && one.getKeys().equals("key-m3")) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                    seen.add(new String(one.getBody(), StandardCharsets.UTF_8));
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        try {
            // 10 single ones, 5 of the batch, the one of the transaction.
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (seen.size() < 16 && System.nanoTime() < until) {
                Thread.sleep(100);
            }
            return seen.size() >= 16 ? "OK" : "only " + seen;
        } finally {
            consumer.shutdown();
        }
    }

    private static String consumeNothing(RPCHook hook, String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(null, group, hook, new AllocateMessageQueueAveragely());
        Set<String> seen = ConcurrentHashMap.newKeySet();
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(one -> seen.add(one.getMsgId()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread.sleep(4_000);
        consumer.shutdown();
        return seen.isEmpty() ? "nothing" : "got " + seen.size();
    }

    private static String litePull(RPCHook hook, String topic, String group) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(null, group, hook);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(UUID.randomUUID().toString());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        try {
            int found = 0;
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(40);
            while (found < 16 && System.nanoTime() < until) {
                found += consumer.poll(1_000).size();
            }
            return found >= 16 ? "OK" : "only " + found;
        } finally {
            consumer.shutdown();
        }
    }
}
