package dbtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"

	"github.com/sqlimit/limiter/internal/testenv"
)

// startTimeout bounds the start of one server, the pull of its image included.
const startTimeout = 3 * time.Minute

// defaultImage is what a contributor with Docker and nothing else set gets.
const defaultImage = "postgres:17-alpine"

// findServers looks for servers once in a process. It starts one only where nothing else tells
// whether there is any.
var findServers = sync.OnceValues(func() ([]*Server, error) {
	if dsn := os.Getenv("LIMITER_TEST_POSTGRES_DSN"); dsn != "" {
		return []*Server{newServer("postgres:dsn", func(context.Context) (booted, error) { return booted{dsn: dsn}, nil })}, nil
	}
	// Keeps the progress of containers out of the output of tests; errors are returned anyway.
	log.SetDefault(log.NewNoopLogger())

	if images := testenv.List("LIMITER_TEST_POSTGRES_IMAGES"); len(images) > 0 {
		servers := make([]*Server, len(images))
		for i, image := range images {
			// A slash in the name of a subtest would make two levels of it.
			servers[i] = newServer(path.Base(image), func(ctx context.Context) (booted, error) { return startContainer(ctx, image) })
		}
		return servers, nil
	}

	container := newServer(defaultImage, func(ctx context.Context) (booted, error) {
		if err := ensureImage(ctx, defaultImage); err != nil {
			return booted{}, err
		}
		return startContainer(ctx, defaultImage)
	})
	noContainer := container.start()
	if noContainer == nil {
		return []*Server{container}, nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	_, major, noCluster := testenv.PostgreSQL(ctx)
	if noCluster != nil {
		return nil, errors.Join(
			fmt.Errorf("container: %w", noContainer),
			fmt.Errorf("cluster on this host: %w", noCluster),
			errors.New("LIMITER_TEST_POSTGRES_DSN is not set"),
		)
	}
	return []*Server{newServer("postgres:"+major, startCluster)}, nil
})

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
		atExit(func() error { return testcontainers.TerminateContainer(container, testcontainers.StopTimeout(0)) })
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
