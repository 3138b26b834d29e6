package history

import (
	"bytes"
	"encoding/gob"

	"github.com/sqlimit/limiter"
)

// calendar is a [limiter.CalendarWindow] in UTC, as gob can send it: a [time.Location] has no exported fields.
type calendar struct {
	Limit    int64
	Period   limiter.Period
	StartDay int
}

// fields are those of a Call.
type fields Call

// sentCall is a Call as it is sent. A calendar replaces the policy of its operation.
type sentCall struct {
	Call     fields
	Calendar *calendar
}

// GobEncode implements [gob.GobEncoder].
func (c Call) GobEncode() ([]byte, error) {
	sent := sentCall{Call: fields(c)}
	if w, ok := c.Op.Policy.(limiter.CalendarWindow); ok {
		sent.Call.Op.Policy, sent.Calendar = nil, &calendar{w.Limit, w.Period, w.StartDay}
	}
	var text bytes.Buffer
	err := gob.NewEncoder(&text).Encode(sent)
	return text.Bytes(), err
}

// GobDecode implements [gob.GobDecoder].
func (c *Call) GobDecode(text []byte) error {
	var sent sentCall
	if err := gob.NewDecoder(bytes.NewReader(text)).Decode(&sent); err != nil {
		return err
	}
	*c = Call(sent.Call)
	if w := sent.Calendar; w != nil {
		c.Op.Policy = limiter.CalendarWindow{Limit: w.Limit, Period: w.Period, StartDay: w.StartDay}
	}
	return nil
}
