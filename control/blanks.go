package control

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// silence is how long an answer may be in the making until its header is sent.
const silence = 30 * time.Second

// blanks sends the header of an answer of JSON that is long in the making, and then a
// blank now and then, which JSON allows before it, so that neither the client nor what is
// between gives up. It is ended before the answer is written. What goes wrong with an
// answer that has begun can only be told by cutting it.
func blanks(c echo.Context) (end func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		rc, takes := http.NewResponseController(c.Response()), takesOf(c.Response())
		wait := time.NewTimer(silence)
		defer wait.Stop()
		for {
			select {
			case <-over:
				return
			case <-wait.C:
			}
			if !c.Response().Committed {
				c.Response().Header().Set("Content-Type", echo.MIMEApplicationJSON)
				c.Response().Header().Set("X-Accel-Buffering", "no")
			}
			takes.Extend()
			if _, err := c.Response().Write([]byte{' '}); err != nil || rc.Flush() != nil {
				return // the client is gone
			}
			wait.Reset(heartbeat)
		}
	}()
	return func() {
		close(over)
		<-done
	}
}
