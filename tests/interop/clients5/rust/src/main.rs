//! The official Rust client against an endpoint: cargo run -- HOST:PORT [tls]
//!
//! It sends and receives messages of each type in the topics that test_other_clients.py makes, and prints PASS or FAIL
//! for each. This client has no push consumer.
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn option() -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(std::env::args().nth(1).expect("HOST:PORT"));
    option.set_enable_tls(std::env::args().nth(2).is_some());
    option
}

fn producer_option(topic: &str) -> ProducerOption {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    option
}

async fn consumer(topic: &str) -> Result<SimpleConsumer, Box<dyn std::error::Error>> {
    let mut wanted = SimpleConsumerOption::default();
    wanted.set_topics(vec![topic]);
    wanted.set_consumer_group(format!("rust-{topic}"));
    let mut made = SimpleConsumer::new(wanted, option())?;
    made.start().await?;
    Ok(made)
}

async fn receive(
    from: &SimpleConsumer,
    topic: &str,
    count: usize,
    seconds: u64,
) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let mut bodies = vec![];
    let end = Instant::now() + Duration::from_secs(seconds);
    while bodies.len() < count && Instant::now() < end {
        for message in from
            .receive(
                topic.to_string(),
                &FilterExpression::new(FilterType::Tag, "*"),
            )
            .await?
        {
            bodies.push(String::from_utf8(message.body().to_vec())?);
            from.ack(&message).await?;
        }
    }
    Ok(bodies)
}

async fn exchange(topic: &str, messages: Vec<impl Message>, want: &[&str]) -> Outcome {
    let mut to = Producer::new(producer_option(topic), option())?;
    to.start().await?;
    let from = consumer(topic).await?;
    for message in messages {
        to.send(message).await?;
    }
    let got = receive(&from, topic, want.len(), 20).await?;
    to.shutdown().await?;
    from.shutdown().await?;
    if got != want {
        return Err(format!("got {got:?}, want {want:?}").into());
    }
    Ok(())
}

async fn normal() -> Outcome {
    let message = MessageBuilder::builder()
        .set_topic("Normal")
        .set_tag("tag")
        .set_body(b"one".to_vec())
        .build()?;
    exchange("Normal", vec![message], &["one"]).await
}

async fn fifo() -> Outcome {
    let want = ["0", "1", "2", "3", "4"];
    let messages = want.iter().map(|body| {
        MessageBuilder::fifo_message_builder("Fifo", body.as_bytes().to_vec(), "group").build()
    });
    exchange("Fifo", messages.collect::<Result<_, _>>()?, &want).await
}

async fn delayed() -> Outcome {
    let due = (SystemTime::now() + Duration::from_secs(3))
        .duration_since(UNIX_EPOCH)?
        .as_secs() as i64;
    let message = MessageBuilder::delay_message_builder("Delay", b"later".to_vec(), due).build()?;
    exchange("Delay", vec![message], &["later"]).await?;
    if (SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64) < due {
        return Err("it came too early".into());
    }
    Ok(())
}

async fn transaction() -> Outcome {
    let checked = Arc::new(Mutex::new(HashSet::<String>::new()));
    let seen = checked.clone();
    let check = Box::new(
        move |_: String, message: rocketmq::model::message::MessageView| {
            seen.lock()
                .unwrap()
                .insert(String::from_utf8(message.body().to_vec()).unwrap());
            TransactionResolution::COMMIT
        },
    );
    let mut to =
        Producer::new_transaction_producer(producer_option("Transaction"), option(), check)?;
    to.start().await?;
    let from = consumer("Transaction").await?;
    for body in ["committed", "rolled back", "checked"] {
        let message =
            MessageBuilder::transaction_message_builder("Transaction", body.as_bytes().to_vec())
                .build()?;
        let one = to.send_transaction_message(message).await?;
        match body {
            "committed" => one.commit().await?,
            "rolled back" => one.rollback().await?,
            _ => (),
        };
    }
    let got = receive(&from, "Transaction", 2, 40).await?;
    to.shutdown().await?;
    from.shutdown().await?;
    let asked = checked.lock().unwrap().clone();
    if got != ["committed", "checked"] || asked != HashSet::from(["checked".to_string()]) {
        return Err(format!("got {got:?}, asked about {asked:?}").into());
    }
    Ok(())
}

fn told(name: &str, began: Instant, outcome: Outcome) -> bool {
    match &outcome {
        Ok(()) => println!("PASS {name} {:.1} s", began.elapsed().as_secs_f64()),
        Err(why) => println!("FAIL {name}: {why}"),
    }
    outcome.is_ok()
}

#[tokio::main]
async fn main() {
    let began = Instant::now();
    let (one, two, three, four) = tokio::join!(normal(), fifo(), delayed(), transaction());
    let passed = [
        told("normal", began, one),
        told("fifo", began, two),
        told("delayed", began, three),
        told("transaction", began, four),
    ];
    std::process::exit(if passed.iter().all(|one| *one) { 0 } else { 1 });
}
