package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/cmd/limiter/internal/database"
)

// keyCommand returns a command whose arguments name a limiter and a key. It calls do within the time
// limit, with the stored key.
func (a *app) keyCommand(use, short string, do func(ctx context.Context, db *database.DB, name string, key []byte) error) *cobra.Command {
	var key keyFlags
	cmd := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, stored, err := key.target(args)
			if err != nil {
				return err
			}
			return a.briefly(cmd.Context(), func(ctx context.Context, db *database.DB) error {
				return do(ctx, db, name, stored)
			})
		},
	}
	a.completeLimiters(cmd)
	key.register(cmd)
	return cmd
}

// keyFlags are the ways to name a key.
type keyFlags struct {
	hex    string
	secret string
}

// dashes says how to name a key that would be read as a flag.
const dashes = "write the flags first, and -- before a KEY that begins with a dash"

func (k *keyFlags) register(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if _, unknown := errors.AsType[*pflag.NotExistError](err); unknown {
			return fmt.Errorf("%w; %s", err, dashes)
		}
		return err
	})
	cmd.Flags().StringVar(&k.hex, "key-hex", "", "the stored key in hex, instead of KEY: key_hex in JSON output, or a digest as top shows it")
	cmd.Flags().StringVar(&k.secret, "key-digest-file", "", "file with the secret of WithKeyDigest: KEY is the key before the digest")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		want := 2
		if k.hex != "" {
			want = 1
		}
		if len(args) != want {
			return fmt.Errorf("the arguments are %q; write %s LIMITER KEY, or %[2]s LIMITER --key-hex HEX; %s", args, cmd.CommandPath(), dashes)
		}
		return nil
	}
}

// target returns the limiter and the stored key that the arguments name.
func (k *keyFlags) target(args []string) (name string, key []byte, err error) {
	if k.hex != "" {
		if k.secret != "" {
			return "", nil, usageError{errors.New("--key-hex is the key as it is stored; leave out --key-digest-file")}
		}
		key, err = hex.DecodeString(strings.TrimPrefix(k.hex, "0x"))
		if err != nil || len(key) == 0 || len(key) > 255 {
			return "", nil, usageError{fmt.Errorf("--key-hex is %q; it must be 1 to 255 bytes in hex", k.hex)}
		}
		return args[0], key, nil
	}
	var secret []byte
	if k.secret != "" {
		if secret, err = os.ReadFile(k.secret); err != nil {
			return "", nil, usageError{err}
		}
		if len(secret) == 0 {
			return "", nil, usageError{fmt.Errorf("%s is empty; it must hold the secret of WithKeyDigest", k.secret)}
		}
	}
	stored, err := limiter.StoredKey(args[1], secret)
	return args[0], []byte(stored), err
}
