package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sqlimit/limiter/prove/mutants/trial"
)

// plantGenerated tries generated mutants.
func plantGenerated(ctx context.Context, o options) error {
	match, err := regexp.Compile(o.names)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	c := &trial.Campaign{Plan: trial.Plan, Jobs: o.jobs, Package: o.pkg, Match: match, Out: os.Stdout, Verbose: o.verbose, Thorough: o.thorough}
	if o.hints != "" {
		if c.Hints, err = trial.Read(o.hints); err != nil {
			return err
		}
	}
	if o.list {
		return listGenerated(ctx, c)
	}
	began := time.Now()
	return inPlace(ctx, func(root, dir string, env []string) error {
		c.Root, c.Dir, c.Env = root, dir, env
		known, err := trial.ReadKnown(filepath.Join(root, o.known))
		if err != nil {
			return err
		}
		if o.tier == "ci" {
			seed, err := commit(ctx, root)
			if err != nil {
				return err
			}
			return c.Sample(ctx, seed, known, o.budget-time.Since(began))
		}
		results, err := c.Run(ctx)
		if o.out != "" && len(results) > 0 {
			err = errors.Join(err, trial.Write(o.out, results))
		}
		if unknown := known.Unknown(results); len(unknown) > 0 {
			err = errors.Join(err, fmt.Errorf("%d mutants survive that are not in %s", len(unknown), o.known))
		}
		return err
	})
}

// commit returns the hash of the newest commit, which chooses the sample.
func commit(ctx context.Context, root string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", "rev-parse", "HEAD")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git rev-parse HEAD: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// listGenerated prints the mutants.
func listGenerated(ctx context.Context, c *trial.Campaign) (err error) {
	if c.Root, err = repository(ctx); err != nil {
		return err
	}
	wanted, err := c.Mutants(ctx)
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
