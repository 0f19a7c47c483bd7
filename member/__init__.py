"""The client side: a member of a consumer group, for asyncio (`client`) and for plain programs (`blocking`).

What lives here: joining, keeping alive, taking and giving up partitions, committing; and a consumer on top of that
(`consumer`), which reads from any source. What does not: everything the service decides. Users import `rallypoint`,
`rallypoint.sources` and `rallypoint.testing`, and nothing from here. `docs/member.md` and `docs/consumer.md` show the
use, `DESIGN.md` beside this file the construction.
"""
