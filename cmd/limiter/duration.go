package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// durationFlag is a flag that takes a duration: what Go takes, and days, as [show.Duration] prints them.
type durationFlag struct{ to *time.Duration }

// durationVar adds a flag that takes a duration.
func durationVar(cmd *cobra.Command, to *time.Duration, name string, usage string) {
	cmd.Flags().Var(durationFlag{to}, name, usage)
}

// Set implements [pflag.Value].
func (d durationFlag) Set(text string) (err error) {
	*d.to, err = parseDuration(text)
	return err
}

// String implements [pflag.Value]. The help text of a flag shows it as the default, unless it is empty.
func (d durationFlag) String() string {
	if d.to == nil || *d.to == 0 {
		return ""
	}
	return d.to.String()
}

// Type implements [pflag.Value].
func (d durationFlag) Type() string { return "duration" }

// withDays is a duration that begins with a number of days.
var withDays = regexp.MustCompile(`^([-+]?)([0-9]+(?:\.[0-9]+)?)d((?:[0-9.].*)?)$`)

// parseDuration returns the duration of a text such as 90s, 1h30m, 7d or 9d16h. A day has 24 hours.
func parseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is no duration; write one such as 90s, 1h30m or 7d", text)
	parts := withDays.FindStringSubmatch(text)
	if parts == nil {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, wrong
		}
		return d, nil
	}
	days, err := strconv.ParseFloat(parts[2], 64)
	rest := time.Duration(0)
	if err == nil && parts[3] != "" {
		rest, err = time.ParseDuration(parts[3])
	}
	if err != nil {
		return 0, wrong
	}
	if days*float64(24*time.Hour) >= float64(math.MaxInt64-rest) {
		return 0, fmt.Errorf("%q is too long; a duration has at most %d days", text, math.MaxInt64/(24*time.Hour))
	}
	d := time.Duration(days*float64(24*time.Hour)) + rest
	if parts[1] == "-" {
		d = -d
	}
	return d, nil
}
