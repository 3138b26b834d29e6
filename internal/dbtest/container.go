package dbtest

import (
	"context"
	"fmt"
	"io"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

// startContainer starts a container of image and returns the DSN of its superuser.
func startContainer(ctx context.Context, image string) (booted, error) {
	container, err := postgres.Run(ctx, image,
		postgres.BasicWaitStrategies(),
		// In memory, where a database is made in 15 ms; on the layers of a container it took 400. The
		// directory is none that an image declares as a volume, as that differs between versions.
		testcontainers.WithTmpfs(map[string]string{"/limiter": "rw"}),
		testcontainers.WithEnv(map[string]string{"PGDATA": "/limiter/data"}),
		testcontainers.WithCmdArgs(
			"-c", "max_connections=300", // Tests run in parallel, each with a pool or two.
			"-c", "full_page_writes=off",
			"-c", "max_wal_size=256MB",
		),
	)
	if container != nil {
		// Even if it failed to start: what exists has to be removed. There is nothing to save, so it
		// is not given time to shut down.
		atExit(func() error {
			return testcontainers.TerminateContainer(container, testcontainers.StopTimeout(0))
		})
	}
	if err != nil {
		return booted{}, err
	}
	dsn, err := container.ConnectionString(ctx, "sslmode=disable")
	return booted{dsn, func(ctx context.Context) ([]byte, error) {
		log, err := container.Logs(ctx)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		return io.ReadAll(log)
	}}, err
}

// ensureImage reports an error unless Docker answers and has the image or can pull it.
func ensureImage(ctx context.Context, image string) (err error) {
	defer func() {
		// This is how testcontainers answers where it finds no Docker at all.
		if r := recover(); r != nil {
			err = fmt.Errorf("docker: %v", r)
		}
	}()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	defer provider.Close()

	if err := provider.Health(ctx); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	if _, err := provider.Client().ImageInspect(ctx, image); err == nil {
		return nil
	}
	if err := provider.PullImage(ctx, image); err != nil {
		return fmt.Errorf("pull %s: %w", image, err)
	}
	return nil
}
