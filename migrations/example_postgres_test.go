package migrations_test

import (
	"context"
	"database/sql"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sqlimit/limiter/migrations"
)

func migrate(ctx context.Context) error {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL")) // import _ "github.com/jackc/pgx/v5/stdlib"
	if err != nil {
		return err
	}
	defer db.Close()
	return migrations.Up(ctx, migrations.Postgres, db)
}
