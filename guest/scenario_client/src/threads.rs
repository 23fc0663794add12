//! One OS thread for each thread of the scenario, each with a queue, so that one may be in a wait while others run.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use d3dkmt::NtStatus;
use proto::scenario_client::{Order, Outcome, Report};

use crate::ScenarioClient;

pub struct Threads {
    scenario_client: &'static ScenarioClient,
    queues: BTreeMap<u32, Sender<Order>>,
}

impl Threads {
    pub fn new(scenario_client: &'static ScenarioClient) -> Threads {
        Threads { scenario_client, queues: BTreeMap::new() }
    }

    /// Puts an order at the end of its thread's queue; the first starts the thread.
    pub fn give(&mut self, order: Order) {
        // Counted before it is queued: a barrier in a queue sees all earlier orders counted.
        self.scenario_client.received_orders.fetch_add(1, Ordering::Relaxed);
        if !self.queues.contains_key(&order.thread) && !self.start(order.thread) {
            let status = NtStatus::NO_MEMORY;
            self.scenario_client.output.report(&Report { tag: order.tag, status, outcome: Outcome::Nothing });
            return;
        }
        self.queues[&order.thread].send(order).expect("a thread never ends before its queue");
    }

    fn start(&mut self, number: u32) -> bool {
        let (queue, orders) = channel();
        let scenario_client = self.scenario_client;
        let thread = std::thread::Builder::new().name(format!("client-{number}"));
        match thread.spawn(move || live(scenario_client, &orders)) {
            Ok(_) => {
                self.queues.insert(number, queue);
                true
            }
            Err(error) => {
                crate::print_error(format_args!("cannot start thread {number}: {error}"));
                false
            }
        }
    }
}

fn live(scenario_client: &ScenarioClient, orders: &Receiver<Order>) {
    for Order { tag, task, .. } in orders {
        let done = scenario_client.perform(task);
        scenario_client.output.report(&Report { tag, status: done.status, outcome: done.outcome });
    }
}
