"""Continuous batching: many requests at once over one bundle.

request         a request and its output deltas: made by any thread, read by any other
limits          limits of the queue and of waiting times
service         the one thread that owns the bundle, and the interface for other threads
scheduler       the steps of that thread: admit requests, prefill and decode slots, deliver output
waiting_queue   requests without a batch slot; slot_allocator: the slot and its reused prefix; scheduled: one sequence
session_folder  texts in files, whose prefixes serve later services
latency         measured costs of rounds and prompts: how many prompt tokens to prefill between two rounds
events          observer of a service, for metrics
"""

from speccompile.serving.scheduler.events import Observer
from speccompile.serving.scheduler.limits import Limits
from speccompile.serving.scheduler.request import OutputDelta, Request
from speccompile.serving.scheduler.service import Service, check_prompted, check_served
from speccompile.serving.scheduler.session_folder import SessionFolder

__all__ = ["Limits", "Observer", "OutputDelta", "Request", "Service", "SessionFolder", "check_prompted", "check_served"]
