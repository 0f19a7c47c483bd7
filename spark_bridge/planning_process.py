"""Creates a planner with its dependencies: the source, the member of the group, the leader's duties.

Only the planning process imports this module. Tasks do not need its imports (see `source`).
"""

import secrets

from rallypoint import BlockingGroupMember
from rallypoint.spark_bridge.control import ReaderControl
from rallypoint.spark_bridge.coordinator_calls import Coordinators
from rallypoint.spark_bridge.leader import LeaderDuties
from rallypoint.spark_bridge.membership import Callbacks, Member, Membership
from rallypoint.spark_bridge.options import BridgeOptions
from rallypoint.spark_bridge.planner import Planner
from rallypoint.spark_bridge.sources.registry import find_source
from rallypoint.spark_bridge.subscription import Subscription
from rallypoint.spark_bridge.topic_ends import HttpRegistry


def start_planner(options: BridgeOptions, control_directory: str | None, *, in_query: bool) -> Planner:
    """Create a planner. It joins the group when it plans for the first time, because it needs the checkpoint id.

    `options`: the query's options.
    `control_directory`: the path of the driver's control directory, if there is one.
    `in_query`: whether a query of Spark asks, which the driver has to check.
    """
    source = find_source(options.source.name)(options.source)
    subscription = Subscription(options, source)
    subscription.begin()
    duties = LeaderDuties(
        options, source, HttpRegistry(Coordinators(options.coordinators, options.token, options.tls)), subscription
    )
    membership = Membership(
        lambda callbacks, name: connect(options, subscription, callbacks, name),
        rebalance_timeout_ms=options.rebalance_timeout_ms,
        cooperative=options.cooperative,
    )

    def join(checkpoint_id: str) -> None:
        if in_query:
            control.wait_until_checked("start")
        if options.report_end_offsets:
            duties.register_topics()
        membership.start(options.instance_id(checkpoint_id))
        duties.start(membership)

    def check_state() -> None:
        if in_query and not options.allow_stateful:
            control.wait_until_checked("batch")

    control = ReaderControl(control_directory, secrets.token_hex(8))
    return Planner(
        options,
        source,
        membership,
        control,
        subscription=subscription,
        at_begin=join,
        at_first_batch=check_state,
        at_end=duties.stop,
    )


def connect(
    options: BridgeOptions,
    subscription: Subscription,
    callbacks: Callbacks,
    group_instance_id: str | None,
) -> Member:
    """Create the member of one query, not yet started."""
    return BlockingGroupMember(
        options.member_options(group_instance_id),
        partition_counts=subscription.partition_counts,
        on_assigned=callbacks.on_assigned,
        on_revoked=callbacks.on_revoked,
        on_lost=callbacks.on_lost,
    )
