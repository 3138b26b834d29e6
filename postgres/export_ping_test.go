package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PingAfterFreezeBy is PingAfterFreeze with another clock.
func PingAfterFreezeBy(config *pgxpool.Config, now func() time.Time) { pingAfterFreeze(config, now) }

// PingTimeout is the PingTimeout that PingAfterFreeze sets.
const PingTimeout = pingTimeout

// PoolConfig returns what a store from Open makes its pool from.
func PoolConfig(s *Store) *pgxpool.Config { return s.config }
