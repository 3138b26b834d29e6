// Package prove runs scenarios with real servers under faults, and checks their histories: see README.md.
package prove
