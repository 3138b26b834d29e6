package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sqlimit/limiter/migrations"
)

func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:example?mode=memory&cache=shared&_pragma=busy_timeout(5000)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()

	if err := migrations.Up(ctx, migrations.SQLite, db); err != nil {
		fmt.Println(err)
		return
	}
	list, err := migrations.Status(ctx, migrations.SQLite, db)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range list {
		fmt.Println(m.Version, m.Name, m.Applied)
	}
	// Output: 1 00001_create_limiter_tables.sql true
}

func Example_postgreSQL() {
	if err := migrate(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func migrate(ctx context.Context) error {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL")) // import _ "github.com/jackc/pgx/v5/stdlib"
	if err != nil {
		return err
	}
	defer db.Close()
	return migrations.Up(ctx, migrations.Postgres, db)
}
