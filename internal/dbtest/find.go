package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"github.com/testcontainers/testcontainers-go/log"

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
			servers[i] = newServer(path.Base(image), func(ctx context.Context) (booted, error) {
				return startContainer(ctx, image)
			})
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
