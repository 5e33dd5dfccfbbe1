"""Programs that measure the peers, none of which needs the arena, because peers pin other versions."""
