"""How far streams have read: batches in their checkpoints, and whether a stream can go on from one."""
