// The official Go client against an endpoint: go run . HOST:PORT
//
// It sends and receives messages of each type in the topics that test_other_clients.py makes, and prints PASS or FAIL
// for each. The client speaks TLS unless ENABLE_SSL=false.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	client "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var failed = false

func config(group string) *client.Config {
	return &client.Config{Endpoint: os.Args[1], ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func scenario(name string, run func()) {
	began := time.Now()
	defer func() {
		if why := recover(); why != nil {
			failed = true
			fmt.Printf("FAIL %s: %v\n", name, why)
			return
		}
		fmt.Printf("PASS %s %.1f s\n", name, time.Since(began).Seconds())
	}()
	run()
}

func producer(topic string, options ...client.ProducerOption) client.Producer {
	made, err := client.NewProducer(config(""), append(options, client.WithTopics(topic))...)
	must(err)
	must(made.Start())
	return made
}

func consumer(topic string) client.SimpleConsumer {
	made, err := client.NewSimpleConsumer(config("go-"+topic), client.WithSimpleAwaitDuration(5*time.Second),
		client.WithSimpleSubscriptionExpressions(map[string]*client.FilterExpression{topic: client.SUB_ALL}))
	must(err)
	must(made.Start())
	return made
}

// receive takes and acknowledges messages until there are enough or the time is over.
func receive(from client.SimpleConsumer, count int, patience time.Duration) []string {
	bodies := []string{}
	for end := time.Now().Add(patience); len(bodies) < count && time.Now().Before(end); {
		some, err := from.Receive(context.Background(), 16, 20*time.Second)
		if err != nil {
			continue // "no new message" is an error to this client
		}
		for _, message := range some {
			bodies = append(bodies, string(message.GetBody()))
			must(from.Ack(context.Background(), message))
		}
	}
	return bodies
}

func expect(got []string, want ...string) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		panic(fmt.Sprintf("got %v, want %v", got, want))
	}
}

func normal() {
	from, to := consumer("Normal"), producer("Normal")
	defer to.GracefulStop()
	defer from.GracefulStop()
	message := &client.Message{Topic: "Normal", Body: []byte("one")}
	message.SetTag("tag")
	message.SetKeys("key")
	_, err := to.Send(context.Background(), message)
	must(err)
	expect(receive(from, 1, 15*time.Second), "one")
}

func fifo() {
	from, to := consumer("Fifo"), producer("Fifo")
	defer to.GracefulStop()
	defer from.GracefulStop()
	want := []string{}
	for number := 0; number < 5; number++ {
		message := &client.Message{Topic: "Fifo", Body: []byte(fmt.Sprint(number))}
		message.SetMessageGroup("group")
		_, err := to.Send(context.Background(), message)
		must(err)
		want = append(want, fmt.Sprint(number))
	}
	expect(receive(from, 5, 15*time.Second), want...)
}

func delayed() {
	from, to := consumer("Delay"), producer("Delay")
	defer to.GracefulStop()
	defer from.GracefulStop()
	due := time.Now().Add(3 * time.Second)
	message := &client.Message{Topic: "Delay", Body: []byte("later")}
	message.SetDelayTimestamp(due)
	_, err := to.Send(context.Background(), message)
	must(err)
	expect(receive(from, 1, 20*time.Second), "later")
	if time.Now().Before(due) {
		panic("it came too early")
	}
}

func transaction() {
	from := consumer("Transaction")
	checked := make(chan string, 9)
	to := producer("Transaction", client.WithTransactionChecker(&client.TransactionChecker{
		Check: func(message *client.MessageView) client.TransactionResolution {
			checked <- string(message.GetBody())
			return client.COMMIT
		},
	}))
	defer to.GracefulStop()
	defer from.GracefulStop()
	for _, body := range []string{"committed", "rolled back", "checked"} {
		tx := to.BeginTransaction()
		_, err := to.SendWithTransaction(context.Background(), &client.Message{Topic: "Transaction", Body: []byte(body)}, tx)
		must(err)
		switch body {
		case "committed":
			must(tx.Commit())
		case "rolled back":
			must(tx.RollBack())
		}
	}
	expect(receive(from, 2, 40*time.Second), "committed", "checked")
	if body := <-checked; body != "checked" {
		panic("asked about " + body)
	}
}

func push() {
	var lock sync.Mutex
	tries := map[string]int32{}
	from, err := client.NewPushConsumer(config("go-Push"), client.WithPushAwaitDuration(5*time.Second),
		client.WithPushSubscriptionExpressions(map[string]*client.FilterExpression{"Push": client.SUB_ALL}),
		client.WithPushMessageListener(&client.FuncMessageListener{
			Consume: func(message *client.MessageView) client.ConsumerResult {
				lock.Lock()
				defer lock.Unlock()
				body := string(message.GetBody())
				tries[body]++
				if body == "fails once" && tries[body] == 1 {
					return client.FAILURE
				}
				return client.SUCCESS
			},
		}))
	must(err)
	must(from.Start())
	defer from.GracefulStop()
	to := producer("Push")
	defer to.GracefulStop()
	for _, body := range []string{"works", "fails once"} {
		_, err := to.Send(context.Background(), &client.Message{Topic: "Push", Body: []byte(body)})
		must(err)
	}
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		lock.Lock()
		done := tries["works"] == 1 && tries["fails once"] == 2
		lock.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			panic(fmt.Sprint(tries))
		}
	}
}

func main() {
	var all sync.WaitGroup
	for name, run := range map[string]func(){
		"normal": normal, "fifo": fifo, "delayed": delayed, "transaction": transaction, "push": push,
	} {
		all.Add(1)
		go func() {
			defer all.Done()
			scenario(name, run)
		}()
	}
	all.Wait()
	if failed {
		os.Exit(1)
	}
}
