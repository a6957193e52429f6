// The official C# client against an endpoint: clients5 HOST:PORT [plain]
//
// It sends and receives messages of each type in the topics that test_other_clients.py makes, and prints PASS or FAIL
// for each. The client speaks TLS unless told otherwise.

using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Text;
using System.Threading.Tasks;
using Org.Apache.Rocketmq;

internal static class Clients5
{
    private static ClientConfig _config;
    private static bool _failed;

    private static void Require(bool condition, string what)
    {
        if (!condition) throw new Exception(what);
    }

    private static void Expect(IEnumerable<string> got, params string[] want)
    {
        var bodies = got.ToList();
        Require(bodies.SequenceEqual(want), $"got [{string.Join(", ", bodies)}], want [{string.Join(", ", want)}]");
    }

    private static async Task Scenario(string name, Func<Task> run)
    {
        var took = Stopwatch.StartNew();
        try
        {
            await run();
            Console.WriteLine($"PASS {name} {took.Elapsed.TotalSeconds:F1} s");
        }
        catch (Exception error)
        {
            _failed = true;
            Console.WriteLine($"FAIL {name}: {error}");
        }
    }

    private static Task<Producer> NewProducer(string topic, ITransactionChecker checker = null)
    {
        var builder = new Producer.Builder().SetClientConfig(_config).SetTopics(topic);
        return (checker == null ? builder : builder.SetTransactionChecker(checker)).Build();
    }

    private static Dictionary<string, FilterExpression> Everything(string topic)
    {
        return new Dictionary<string, FilterExpression> { { topic, new FilterExpression("*") } };
    }

    private static Task<SimpleConsumer> NewConsumer(string topic)
    {
        return new SimpleConsumer.Builder().SetClientConfig(_config).SetConsumerGroup($"csharp-{topic}")
            .SetAwaitDuration(TimeSpan.FromSeconds(5)).SetSubscriptionExpression(Everything(topic)).Build();
    }

    private static Message.Builder NewMessage(string topic, string body)
    {
        return new Message.Builder().SetTopic(topic).SetBody(Encoding.UTF8.GetBytes(body));
    }

    // Takes and acknowledges messages until there are enough or the time is over.
    private static async Task<List<string>> Receive(SimpleConsumer from, int count, int patience)
    {
        var bodies = new List<string>();
        for (var took = Stopwatch.StartNew(); bodies.Count < count && took.Elapsed.TotalSeconds < patience;)
        {
            foreach (var message in await from.Receive(16, TimeSpan.FromSeconds(20)))
            {
                bodies.Add(Encoding.UTF8.GetString(message.Body));
                await from.Ack(message);
            }
        }

        return bodies;
    }

    private static async Task Normal()
    {
        await using var from = await NewConsumer("Normal");
        await using var to = await NewProducer("Normal");
        await to.Send(NewMessage("Normal", "one").SetTag("tag").SetKeys("key").AddProperty("name", "value").Build());
        var received = new List<MessageView>();
        for (var took = Stopwatch.StartNew(); received.Count < 1 && took.Elapsed.TotalSeconds < 15;)
        {
            received.AddRange(await from.Receive(16, TimeSpan.FromSeconds(20)));
        }

        Expect(received.Select(message => Encoding.UTF8.GetString(message.Body)), "one");
        var one = received[0];
        Require(one.Tag == "tag" && one.Keys.Single() == "key" && one.Properties["name"] == "value", one.ToString());
        Require(!one.IsCorrupted() && one.DeliveryAttempt == 1, one.ToString());

        // The client keeps the handle of the receive and acknowledges with it, though the change returned another one:
        // the message comes again, and then can be acknowledged.
        await from.ChangeInvisibleDuration(one, TimeSpan.FromSeconds(1));
        Expect(await Receive(from, 1, 15), "one");
    }

    private static async Task Fifo()
    {
        await using var from = await NewConsumer("Fifo");
        await using var to = await NewProducer("Fifo");
        var want = Enumerable.Range(0, 5).Select(number => number.ToString()).ToArray();
        foreach (var body in want) await to.Send(NewMessage("Fifo", body).SetMessageGroup("group").Build());
        Expect(await Receive(from, want.Length, 15), want);
    }

    private static async Task Delayed()
    {
        await using var from = await NewConsumer("Delay");
        await using var to = await NewProducer("Delay");
        var due = DateTime.UtcNow.AddSeconds(3);
        var never = await to.Send(NewMessage("Delay", "never").SetDeliveryTimestamp(due).Build());
        await to.RecallMessage("Delay", ((SendReceipt)never).RecallHandle);
        await to.Send(NewMessage("Delay", "later").SetDeliveryTimestamp(due).Build());
        Expect(await Receive(from, 1, 20), "later");
        Require(DateTime.UtcNow >= due, "it came too early");
    }

    private class Checker : ITransactionChecker
    {
        public readonly ConcurrentQueue<string> Asked = new ConcurrentQueue<string>();

        public TransactionResolution Check(MessageView message)
        {
            Asked.Enqueue(Encoding.UTF8.GetString(message.Body));
            return TransactionResolution.Commit;
        }
    }

    private static async Task Transactions()
    {
        var checker = new Checker();
        await using var from = await NewConsumer("Transaction");
        await using var to = await NewProducer("Transaction", checker);
        foreach (var body in new[] { "committed", "rolled back", "checked" })
        {
            var open = to.BeginTransaction();
            await to.Send(NewMessage("Transaction", body).Build(), open);
            if (body == "committed") await open.Commit();
            if (body == "rolled back") await open.Rollback();
        }

        Expect(await Receive(from, 2, 40), "committed", "checked");
        Expect(checker.Asked, "checked");
    }

    private class Listener : IMessageListener
    {
        public readonly ConcurrentDictionary<string, int> Tries = new ConcurrentDictionary<string, int>();

        public ConsumeResult Consume(MessageView message)
        {
            var body = Encoding.UTF8.GetString(message.Body);
            var attempt = Tries.AddOrUpdate(body, 1, (_, tries) => tries + 1);
            return body == "fails once" && attempt == 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        }
    }

    private static async Task Push()
    {
        var listener = new Listener();
        await using var from = await new PushConsumer.Builder().SetClientConfig(_config)
            .SetConsumerGroup("csharp-Push").SetSubscriptionExpression(Everything("Push"))
            .SetMessageListener(listener).Build();
        await using var to = await NewProducer("Push");
        foreach (var body in new[] { "works", "fails once" }) await to.Send(NewMessage("Push", body).Build());
        var took = Stopwatch.StartNew();
        while (!(listener.Tries.GetValueOrDefault("works") == 1 && listener.Tries.GetValueOrDefault("fails once") == 2))
        {
            Require(took.Elapsed.TotalSeconds < 40, string.Join(", ", listener.Tries));
            await Task.Delay(100);
        }
    }

    private static async Task<int> Main(string[] arguments)
    {
        // .NET Core 3.1 needs the switch to speak HTTP/2 in plain text; later releases do without.
        AppContext.SetSwitch("System.Net.Http.SocketsHttpHandler.Http2UnencryptedSupport", true);
        var config = new ClientConfig.Builder().SetEndpoints(arguments[0]).EnableSsl(!arguments.Contains("plain"));
        var key = Environment.GetEnvironmentVariable("ROCKETMQ_ACCESS_KEY");
        if (key != null)
        {
            var secret = Environment.GetEnvironmentVariable("ROCKETMQ_SECRET_KEY");
            config.SetCredentialsProvider(new StaticSessionCredentialsProvider(key, secret));
        }

        _config = config.Build();
        await Task.WhenAll(Scenario("normal", Normal), Scenario("fifo", Fifo), Scenario("delayed", Delayed),
            Scenario("transaction", Transactions), Scenario("push", Push));
        return _failed ? 1 : 0;
    }
}
