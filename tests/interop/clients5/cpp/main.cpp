// The official C++ client against an endpoint: clients5 HOST:PORT [plain]
//
// It sends and receives messages of each type in the topics that test_other_clients.py makes, and prints PASS or FAIL
// for each. The client speaks TLS unless told otherwise.

#include <rocketmq/Logger.h>
#include <rocketmq/Producer.h>
#include <rocketmq/PushConsumer.h>
#include <rocketmq/SimpleConsumer.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

using namespace rocketmq;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

static std::string endpoints;
static bool tls = true;
static bool failed = false;
static std::mutex printing;

static Configuration configuration() {
    return Configuration::newBuilder().withEndpoints(endpoints).withSsl(tls).build();
}

static void must(const std::error_code& error, const std::string& what) {
    if (error) throw std::runtime_error(what + ": " + error.message());
}

static void require(bool condition, const std::string& what) {
    if (!condition) throw std::runtime_error(what);
}

static void scenario(const std::string& name, const std::function<void()>& run) {
    auto began = Clock::now();
    std::string verdict;
    try {
        run();
        verdict = "PASS " + name + " " + std::to_string(std::chrono::duration<double>(Clock::now() - began).count()) + " s";
    } catch (const std::exception& error) {
        verdict = "FAIL " + name + ": " + error.what();
    }
    std::lock_guard<std::mutex> lock(printing);
    failed |= verdict[0] == 'F';
    std::cout << verdict << std::endl;
}

static Producer producer(const std::string& topic, TransactionChecker checker = nullptr) {
    auto builder = Producer::newBuilder();
    builder.withConfiguration(configuration()).withTopics({topic});
    if (checker) builder.withTransactionChecker(std::move(checker));
    return builder.build();
}

static SimpleConsumer consumer(const std::string& topic) {
    return SimpleConsumer::newBuilder().withGroup("cpp-" + topic).withConfiguration(configuration())
        .subscribe(topic, FilterExpression("*")).withAwaitDuration(5s).build();
}

static MessageBuilder message(const std::string& topic, const std::string& body) {
    auto builder = Message::newBuilder();
    builder.withTopic(topic).withBody(body);
    return builder;
}

static SendReceipt send(Producer& to, MessageBuilder& what) {
    std::error_code error;
    auto receipt = to.send(what.build(), error);
    must(error, "send");
    return receipt;
}

// Takes and acknowledges messages until there are enough or the time is over.
static std::vector<std::string> receive(SimpleConsumer& from, std::size_t count, Clock::duration patience) {
    std::vector<std::string> bodies;
    for (auto end = Clock::now() + patience; bodies.size() < count && Clock::now() < end;) {
        std::vector<MessageConstSharedPtr> some;
        std::error_code error;
        from.receive(16, 20s, error, some);  // "no content" is an error to this client
        for (const auto& one : some) {
            bodies.push_back(one->body());
            from.ack(*one, error);
            must(error, "ack");
        }
    }
    return bodies;
}

static void expect(const std::vector<std::string>& got, const std::vector<std::string>& want) {
    std::string text;
    for (const auto& one : got) text += " " + one;
    require(got == want, "got" + text);
}

static void normal() {
    auto from = consumer("Normal");
    auto to = producer("Normal");
    auto one = message("Normal", "one");
    send(to, one.withTag("tag").withKeys({"key"}));
    expect(receive(from, 1, 15s), {"one"});
}

static void fifo() {
    auto from = consumer("Fifo");
    auto to = producer("Fifo");
    std::vector<std::string> want;
    for (int number = 0; number < 5; ++number) {
        want.push_back(std::to_string(number));
        auto one = message("Fifo", want.back());
        send(to, one.withGroup("group"));
    }
    expect(receive(from, 5, 15s), want);
}

static void delayed() {
    auto from = consumer("Delay");
    auto to = producer("Delay");
    auto due = std::chrono::system_clock::now() + 3s;
    auto never = message("Delay", "never"), later = message("Delay", "later");
    std::string topic = "Delay", handle = send(to, never.availableAfter(due)).recall_handle;
    std::error_code error;
    to.recall(topic, handle, error);
    must(error, "recall");
    send(to, later.availableAfter(due));
    expect(receive(from, 1, 20s), {"later"});
    require(std::chrono::system_clock::now() >= due, "it came too early");
}

static void transaction() {
    auto from = consumer("Transaction");
    std::mutex lock;
    std::string checked;
    auto to = producer("Transaction", [&](const Message& asked) {
        std::lock_guard<std::mutex> guard(lock);
        checked = asked.body();
        return TransactionState::COMMIT;
    });
    for (const std::string body : {"committed", "rolled back", "checked"}) {
        auto open = to.beginTransaction();
        std::error_code error;
        auto one = message("Transaction", body);
        to.send(one.build(), error, *open);
        must(error, "send");
        if (body == "committed") require(open->commit(), "commit");
        if (body == "rolled back") require(open->rollback(), "rollback");
    }
    expect(receive(from, 2, 40s), {"committed", "checked"});
    std::lock_guard<std::mutex> guard(lock);
    require(checked == "checked", "asked about " + checked);
}

static void push() {
    std::mutex lock;
    std::map<std::string, int> tries;
    auto from = PushConsumer::newBuilder().withGroup("cpp-Push").withConfiguration(configuration())
        .withConsumeThreads(2).subscribe("Push", FilterExpression("*"))
        .withListener([&](const Message& got) {
            std::lock_guard<std::mutex> guard(lock);
            return ++tries[got.body()] == 1 && got.body() == "fails once" ? ConsumeResult::FAILURE : ConsumeResult::SUCCESS;
        }).build();
    auto to = producer("Push");
    for (const std::string body : {"works", "fails once"}) {
        auto one = message("Push", body);
        send(to, one);
    }
    auto is_done = [&] {
        std::lock_guard<std::mutex> guard(lock);
        return tries["works"] == 1 && tries["fails once"] == 2;
    };
    for (auto end = Clock::now() + 40s; !is_done(); std::this_thread::sleep_for(100ms))
        require(Clock::now() < end, "not every message came as often as it should");
    from.shutdown();
}

int main(int count, char** arguments) {
    if (count < 2) return 2;
    endpoints = arguments[1];
    tls = count < 3;
    getLogger().setConsoleLevel(Level::Error);
    getLogger().setLevel(Level::Error);
    getLogger().init();
    std::vector<std::thread> all;
    const std::map<std::string, std::function<void()>> scenarios = {
        {"normal", normal}, {"fifo", fifo}, {"delayed", delayed}, {"transaction", transaction}, {"push", push},
    };
    for (const auto& one : scenarios) all.emplace_back(scenario, one.first, one.second);
    for (auto& one : all) one.join();
    std::cout.flush();
    std::_Exit(failed ? 1 : 0);  // the client's own statics may outlive their threads
}
