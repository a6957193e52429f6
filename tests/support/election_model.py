"""Leadership and elections as one model: some replicas, a coordinator, any order of events.

Invariants, held after every step:
- acknowledged messages are in the log of every later leader, at the same offset;
- at most one leader per epoch acknowledges;
- messages visible to a consumer stay in every later leader's log.

Events are chosen by a `Random`, or read from bytes drawn by hypothesis (`Drawn`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from rocketlet.failover.candidacy import Candidacy, Follow, Stand
from rocketlet.failover.coordinator import GroupState, Presence, View
from rocketlet.failover.epochs import Epochs, common_end
from rocketlet.failover.in_sync import InSync, Proposal

T = TypeVar("T")
LEASE = 3.0
TIMEOUT = 2.0


class Choices(Protocol):
    """The model's source of randomness."""

    def random(self) -> float: ...

    def randrange(self, start: int, stop: int | None = None) -> int: ...

    def choice(self, of: Sequence[T]) -> T: ...


class Drawn:
    """Choices read from bytes, two for each; after their end all are the same."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._data)

    def random(self) -> float:
        pair = self._data[self._at : self._at + 2]
        self._at += 2
        return int.from_bytes(pair, "little") / (1 << 16)

    def randrange(self, start: int, stop: int | None = None) -> int:
        begin, end = (0, start) if stop is None else (start, stop)
        return begin + int(self.random() * (end - begin))

    def choice(self, of: Sequence[T]) -> T:
        return of[self.randrange(len(of))]


Entry = tuple[int, int]  # a log entry: epoch, serial number


@dataclass
class Hub:
    """The coordinator: one value, replaced by compare-and-set."""

    state: GroupState = field(default_factory=GroupState)
    revision: int = 0
    holder: str = ""
    lease_until: float = 0.0

    def put(self, state: GroupState, revision: int) -> int:
        if revision != self.revision:
            return 0
        self.state, self.revision = state, self.revision + 1
        return self.revision


@dataclass
class Node:
    name: str
    log: list[Entry] = field(default_factory=list)
    epochs: Epochs = field(default_factory=Epochs)
    promised: int = 0
    visible: int = 0
    up: bool = True
    lead: InSync | None = None
    follows: tuple[str, int] | None = None  # leader and epoch of the open stream
    view: View = field(default_factory=View)
    candidacy: Candidacy = field(init=False)
    acks: list[tuple[str, int, int]] = field(default_factory=list)  # in flight to this leader: who, epoch, end
    pending_proposal: Proposal | None = None  # at the coordinator, and not answered yet
    outcome: int | None = None  # its outcome, once it took effect

    def __post_init__(self) -> None:
        self.candidacy = Candidacy(self.name, LEASE, "g")

    def start(self) -> None:
        self.up, self.lead, self.follows = True, None, None
        self.view, self.acks, self.visible, self.pending_proposal = View(), [], 0, None
        self.candidacy = Candidacy(self.name, LEASE, "g")


class Cluster:
    def __init__(self, random: Choices, size: int, trouble: float = 1.0) -> None:
        """`trouble`: the frequency of failures, above 1 for short runs."""
        self.random = random
        self.trouble = trouble
        self.now = 0.0
        self.hub = Hub()
        self.nodes = {f"{n}/s": Node(f"{n}/s") for n in range(1, size + 1)}
        self.serial = 0
        self.cut: list[frozenset[str]] = []  # links between nodes
        self.without_hub: set[str] = set()
        self.acknowledged: list[Entry] = []  # by place: the confirmed log of the group
        self.ackers: dict[int, str] = {}
        self.stray: list[tuple[Proposal, Node]] = []  # requests that may yet reach the coordinator
        self.elections = 0

    # ---- checks

    def confirm(self, node: Node) -> None:
        lead = node.lead
        assert lead is not None
        before = lead.confirmed
        confirmed = lead.confirm(len(node.log))
        if confirmed <= before:
            return
        assert self.ackers.setdefault(lead.state.epoch, node.name) == node.name, "two leaders acknowledge in an epoch"
        known = min(confirmed, len(self.acknowledged))
        assert node.log[:known] == self.acknowledged[:known], "a leader lacks what was acknowledged"
        self.acknowledged += node.log[known:confirmed]
        node.visible = max(node.visible, confirmed)

    def check_log_complete(self, node: Node) -> None:
        assert node.log[: len(self.acknowledged)] == self.acknowledged, "elected without what was acknowledged"

    # ---- events

    def step(self) -> None:
        random = self.random
        node = self.nodes[random.choice(list(self.nodes))]
        draw = random.random()
        failure_draw = draw / self.trouble
        if failure_draw < 0.004:
            self.link(node)
        elif failure_draw < 0.006 and self.cut:
            self.cut.pop(0)
        elif failure_draw < 0.01:
            (self.without_hub.discard if node.name in self.without_hub else self.without_hub.add)(node.name)
        elif failure_draw < 0.015 and len(self.without_hub) > 1:
            self.without_hub.clear()
        elif failure_draw < (0.02 if node.up else 0.06):
            if node.up:
                node.up = False
                self.hang_up(node)
            else:
                node.start()
        elif draw > 0.92:
            self.now += random.choice((0.05, 0.3, 1.0, 4.0))
        elif draw > 0.86:
            self.land_stray()
        elif node.up:
            self.act(node)

    def act(self, node: Node) -> None:
        random = self.random
        draw = random.random()
        if draw < 0.25:
            self.look(node)
        elif node.lead is not None and draw < 0.45:
            for _ in range(random.randrange(1, 4)):
                self.serial += 1
                node.log.append((node.lead.state.epoch, self.serial))
        elif node.lead is not None and draw < 0.7:
            while node.acks and random.random() < 0.7:
                member, epoch, end = node.acks.pop(0)
                if epoch == node.lead.state.epoch and member in node.lead.replicas:
                    node.lead.on_acked(member, end, self.now)
            self.confirm(node)
        elif node.lead is not None and draw < 0.85:
            self.propose(node)
        elif node.lead is None and draw < 0.7:
            self.copy(node)
        elif node.lead is None:
            self.decide(node)

    def land_stray(self) -> None:
        """An unanswered request reaches the coordinator late."""
        if self.stray:
            proposal, _ = self.stray.pop(self.random.randrange(len(self.stray)))
            self.hub.put(proposal.state, proposal.revision)

    def link(self, node: Node) -> None:
        other = self.nodes[self.random.choice([name for name in self.nodes if name != node.name])]
        pair = frozenset((node.name, other.name))
        if pair in self.cut:
            self.cut.remove(pair)
        else:
            self.cut.append(pair)
            for first, second in ((node, other), (other, node)):
                if first.follows and first.follows[0] == second.name:
                    self.leave(first)

    def hang_up(self, node: Node) -> None:
        self.leave(node)
        for other in self.nodes.values():
            if other.follows and other.follows[0] == node.name:
                self.leave(other)

    def leave(self, node: Node) -> None:
        if node.follows is None:
            return
        leader = self.nodes[node.follows[0]]
        epoch = node.follows[1]
        node.follows = None
        if leader.lead is not None and leader.lead.state.epoch == epoch and node.name in leader.lead.replicas:
            if self.random.random() < 0.5:  # its last messages may be read before the end of the connection, or never
                leader.acks = [ack for ack in leader.acks if ack[0] != node.name]
            leader.lead.on_left(node.name, self.now)

    def look(self, node: Node) -> None:
        if node.name in self.without_hub:
            return
        hub = self.hub
        if hub.holder and not (hub.holder not in self.without_hub and self.nodes[hub.holder].up):
            if self.now > hub.lease_until:
                hub.holder = ""
        elif hub.holder:
            hub.lease_until = self.now + LEASE
        members = {
            n.name: Presence("a", "r", len(n.log))
            for n in self.nodes.values()
            if n.up and n.name not in self.without_hub
        }
        node.view = View(hub.state, hub.revision, bool(hub.holder), members)
        if node.lead is not None:
            node.lead.learn(hub.state, hub.revision)
            if node.lead.replaced:
                self.hang_up(node)
                node.start()
            elif not hub.holder:
                hub.holder, hub.lease_until = node.name, self.now + LEASE

    def propose(self, node: Node) -> None:
        lead = node.lead
        assert lead is not None
        if node.pending_proposal is None:
            node.pending_proposal = lead.propose(len(node.log), self.now, TIMEOUT)
            node.outcome = None
            return
        proposal, fate = node.pending_proposal, self.random.random()
        if fate < 0.4 and node.name not in self.without_hub and node.outcome is None:
            node.outcome = self.hub.put(proposal.state, proposal.revision)
            return
        if fate < 0.5:
            return
        node.pending_proposal = None
        if node.outcome is None or fate < 0.6:  # no answer has come
            lead.on_doubt()
            if node.outcome is None and fate < 0.8:
                self.stray.append((proposal, node))
        elif node.outcome:
            lead.on_accepted(node.outcome)
        else:
            lead.on_refused()

    def decide(self, node: Node) -> None:
        follows = node.follows[0] if node.follows else ""
        decision = node.candidacy.decide(
            node.view, self.now, promised=node.promised, end=len(node.log), following=follows
        )
        if isinstance(decision, Stand):
            if node.name in self.without_hub or (self.hub.holder and not decision.over):
                return
            if revision := self.hub.put(decision.state, decision.revision):
                self.hub.holder, self.hub.lease_until = node.name, self.now + LEASE
                if self.random.random() < 0.1:
                    self.hang_up(node)
                    node.up = False  # it dies before it learns of its election
                    return
                self.leave(node)
                node.epochs = node.epochs.with_epoch(decision.state.epoch, len(node.log))
                node.promised = decision.state.epoch
                node.lead = InSync(node.name, decision.state, revision, len(node.log), self.now)
                node.acks, node.pending_proposal = [], None
                self.check_log_complete(node)
                self.elections += 1
        elif isinstance(decision, Follow) and (not node.follows or node.follows != (decision.leader, decision.epoch)):
            self.join(node, decision)

    def join(self, node: Node, decision: Follow) -> None:
        self.leave(node)
        leader = self.nodes[decision.leader]
        lead = leader.lead
        pair = frozenset((node.name, leader.name))
        if not leader.up or lead is None or pair in self.cut or lead.state.epoch != decision.epoch:
            return
        if node.promised > decision.epoch:
            return
        end = common_end(node.epochs, len(node.log), leader.epochs, len(leader.log))
        assert node.log[:end] == leader.log[:end], "the common end is not common"
        assert end >= min(node.visible, len(node.log)), "what was visible is cut"
        del node.log[end:]
        node.epochs, node.promised = leader.epochs, decision.epoch
        node.follows = (leader.name, decision.epoch)
        lead.on_joined(node.name, "", self.now)
        leader.acks.append((node.name, decision.epoch, len(node.log)))

    def copy(self, node: Node) -> None:
        if node.follows is None:
            return
        leader = self.nodes[node.follows[0]]
        lead = leader.lead
        if lead is None or not leader.up or lead.state.epoch != node.follows[1]:
            self.leave(node)
            return
        count = self.random.randrange(1, 5)
        node.log += leader.log[len(node.log) : len(node.log) + count]
        node.visible = max(node.visible, min(lead.confirmed, len(node.log)))
        leader.acks.append((node.name, node.follows[1], len(node.log)))
