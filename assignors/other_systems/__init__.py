"""The assignment rules of two message-queue systems, MetaQ and RocketMQ, for groups that move over from them."""
