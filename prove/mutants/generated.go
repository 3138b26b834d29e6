package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/sqlimit/limiter/prove/mutants/trial"
)

// plantGenerated tries generated mutants.
func plantGenerated(ctx context.Context, o options) error {
	match, err := regexp.Compile(o.names)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	c := &trial.Campaign{Jobs: o.jobs, Package: o.pkg, Match: match, Out: os.Stdout, Verbose: o.verbose}
	if o.list {
		return listGenerated(ctx, c)
	}
	return inPlace(ctx, func(root, dir string, env []string) error {
		c.Root, c.Dir, c.Env = root, dir, env
		results, err := c.Run(ctx)
		if o.out != "" && len(results) > 0 {
			err = errors.Join(err, trial.Write(o.out, results))
		}
		return err
	})
}

// listGenerated prints the mutants.
func listGenerated(ctx context.Context, c *trial.Campaign) (err error) {
	if c.Root, err = repository(ctx); err != nil {
		return err
	}
	wanted, err := c.Mutants()
	if err != nil {
		return err
	}
	for _, target := range trial.Plan {
		for _, m := range wanted[target.Dir] {
			fmt.Println(m.Identity())
		}
	}
	return nil
}
