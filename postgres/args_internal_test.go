package postgres

import (
	"bytes"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestArgumentsEncodeAsPlainOnes(t *testing.T) {
	t.Parallel()
	name, key, number := textArg("a\"{,}\\ b"), byteaArg("\x00k'\\"), int8Arg(-1<<62)
	names, keys, numbers := textsArg{name, "NULL", ""}, byteasArg{key, {}}, int8sArg{number, 0, 1 << 62}
	list := rowlist.Of(-1<<62, 0, 1<<62)
	for _, c := range []struct {
		oid        uint32
		arg, plain any
	}{
		{pgtype.TextOID, &name, string(name)},
		{pgtype.ByteaOID, &key, []byte(key)},
		{pgtype.Int8OID, &number, int64(number)},
		{pgtype.TextArrayOID, &names, []string{string(name), "NULL", ""}},
		{pgtype.ByteaArrayOID, &keys, [][]byte{key, {}}},
		{pgtype.Int8ArrayOID, &numbers, []int64{-1 << 62, 0, 1 << 62}},
		{pgtype.Int8ArrayOID, &listArg{list: rowlist.Part{Row: &list, Of: 1}}, []int64{-1 << 62, 0, 1 << 62}},
		{pgtype.Int8ArrayOID, &listArg{list: rowlist.Part{Row: new(string), Of: 1}}, []int64{}},
	} {
		for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
			want, err := pgtype.NewMap().Encode(c.oid, format, c.plain, nil)
			testenv.Must(t, err)
			oids := []uint32{c.oid}
			if format == pgtype.TextFormatCode {
				oids = append(oids, 0) // nobody knows the type, in QueryExecModeExec
			}
			for _, oid := range oids {
				got, err := pgtype.NewMap().Encode(oid, format, c.arg, nil)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%T as type %d, format %d: %q, %v; want %q", c.arg, oid, format, got, err, want)
				}
			}
		}
	}
}

func TestTakeWithoutATime(t *testing.T) {
	t.Parallel()
	store := &Store{options: options{schema: "public"}, db: new(script)}
	for _, at := range []int64{0, 7} {
		for _, c := range []struct {
			policy limiter.Policy
			args   int
		}{
			{limiter.PerHour(3), 7},
			{limiter.FixedWindow{Limit: 3, Window: time.Hour}, 8},
			{limiter.FixedWindow{Limit: 3, Window: time.Hour, CountRejected: true}, 8},
			{limiter.CalendarWindow{Limit: 3, Period: limiter.Day}, 9},
		} {
			op := &limiter.Op{Name: "l", Key: "k", Policy: c.policy, At: at}
			_, calendar := c.policy.(limiter.CalendarWindow)
			table := store.open(tables.All[limiter.KindOf(c.policy)-1], calendar)
			call := newTakeStatement(table, op, store.numbers(table, op))
			if len(call.args) != c.args {
				t.Errorf("%+v: %d arguments, want %d", c.policy, len(call.args), c.args)
			}
			for i, arg := range call.args {
				if (arg == nil) != (at == 0 && i == 5) {
					t.Errorf("%+v, time %d: argument %d is %v", c.policy, at, i+1, arg)
				}
			}
		}
	}
}

func TestScanOfAList(t *testing.T) {
	t.Parallel()
	for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
		list := "before"
		for _, want := range [][]int64{{-1 << 62, 0, 1 << 62}, {7}, {}} {
			sent, err := pgtype.NewMap().Encode(pgtype.Int8ArrayOID, format, want, nil)
			testenv.Must(t, err)
			err = pgtype.NewMap().Scan(pgtype.Int8ArrayOID, format, sent, &listArg{list: rowlist.Part{Row: &list, Of: 1}})
			if err != nil || list != rowlist.Of(want...) {
				t.Errorf("format %d: %v, %v; want %v", format, rowlist.Numbers(list), err, want)
			}
		}
	}
}
