"""The monitor: keeps the newest events of a process and passes each on to whoever listens (log, metrics, views)."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from ctxproxy.monitor.events import Event

__all__ = ["Listener", "Monitor"]

_log = logging.getLogger("ctxproxy")
Listener = Callable[[Event], None]
_MOST_SESSIONS = 10_000  # whose costs are remembered


class Monitor:
    """The newest `keep` events, and listeners. Safe to use from several threads.

    A listener is called in the thread in which the event happened, so it has to be quick; one that fails is
    logged once and costs nothing else.
    """

    def __init__(self, *, keep: int = 10_000, listeners: Iterable[Listener] = ()) -> None:
        self._events: deque[Event] = deque(maxlen=keep)
        self._count = 0
        self._listeners: tuple[Listener, ...] = tuple(listeners)
        self._lock = threading.Lock()
        self._failed: set[int] = set()
        self._spent: OrderedDict[str, dict[str, float]] = OrderedDict()

    def emit(self, *events: Event) -> None:
        """Record events."""
        with self._lock:
            self._events.extend(events)
            self._charge(events)
            self._count += len(events)
            listeners = self._listeners
        for listener in listeners:
            for event in events:
                try:
                    listener(event)
                except Exception:
                    if id(listener) not in self._failed:
                        self._failed.add(id(listener))
                        _log.exception("an event could not be passed on")

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on; the result stops that."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(known for known in self._listeners if known is not listener)

        return stop

    def recall(self, events: Iterable[Event]) -> None:
        """Put events of an earlier process ahead of those of this one, without telling the listeners."""
        events = tuple(events)
        with self._lock:
            self._charge(events)
            newer, older = list(self._events), list(events)
            self._events.clear()
            self._events.extend([*older, *newer])
            self._count += len(older)

    def since(self, after: int) -> tuple[int, Sequence[Event]]:
        """The events behind the first `after` ones, as far as they are kept, and how many there were in all.

        A number that was never reached is one of an earlier process: all events are new then.
        """
        with self._lock:
            found, count = tuple(self._events), self._count
        new = count - after if 0 <= after <= count else count
        return count, found[max(0, len(found) - new) :] if new else ()

    def spent(self, session: str, agent: str | None = None) -> float:
        """USD that the requests of a session cost so far, or those of one agent of it, as far as prices are known."""
        with self._lock:
            agents = self._spent.get(session, {})
            return sum(agents.values()) if agent is None else agents.get(agent, 0.0)

    def _charge(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.type == "request" and event.cost and event.session:
                agents = self._spent.setdefault(event.session, {})
                agents[event.agent] = agents.get(event.agent, 0.0) + event.cost
                self._spent.move_to_end(event.session)
                if len(self._spent) > _MOST_SESSIONS:
                    self._spent.popitem(last=False)

    def events(self, *, session: str | None = None, account: str | None = None) -> Sequence[Event]:
        """The events that are kept, oldest first; of one session or one account if given."""
        with self._lock:
            found = tuple(self._events)
        if session is None and account is None:
            return found
        return tuple(
            event
            for event in found
            if (session is None or event.session == session) and (account is None or event.account == account)
        )
