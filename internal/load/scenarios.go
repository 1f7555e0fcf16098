package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	measured = 1500 * time.Millisecond // of a scenario that goes on
	streamed = 800 * time.Millisecond  // that a stream is made to take
	still    = 3500 * time.Millisecond // until what opened connections has settled
	idle     = 1000                    // connections that do nothing
	at1time  = 8                       // connections that are opened at one time
)

// figure is one thing that was measured.
type figure struct {
	value float64
	unit  string
}

// scenario is one thing that clients do.
type scenario struct {
	name  string
	run   func(t *target) ([]figure, error)
	alone bool // a bridge, which starts an agent for each connection, has nothing to compare
	files bool // it uses files, which a hub's own address does not have
	many  bool // it has more connections than a hub lets one token have at a node
	// stored is for what a hub does beside: only targets with one are measured.
	stored     bool
	durability string // of sessions, "" for the standard one
}

var scenarios = []scenario{
	{name: "Start", run: coldStart},
	{name: "Echo/conns=1", run: again(1, "echo")},
	{name: "Echo/sync", run: again(1, "echo"), alone: true, stored: true, durability: "sync"},
	{name: "Echo/conns=16", run: again(16, "echo")},
	{name: "Ask", run: again(1, "ask")},
	{name: "Paced", run: stream(1, 50, 2*time.Millisecond)},
	{name: "Stream/size=50/conns=1", run: stream(1, 50, 0)},
	{name: "Stream/size=1k/conns=1", run: stream(1, 1<<10, 0)},
	{name: "Stream/size=64k/conns=1", run: stream(1, 64<<10, 0)},
	{name: "Stream/size=50/conns=16", run: stream(16, 50, 0)},
	{name: "Stream/size=1k/conns=16", run: stream(16, 1<<10, 0)},
	{name: "Stream/size=64k/conns=16", run: stream(16, 64<<10, 0)},
	{name: "Upload", run: transfer(upload), files: true},
	{name: "Download", run: transfer(download), files: true},
	{name: "Idle", run: idleConnections, many: true},
	{name: "Many", run: stream(idle, 50, 50*time.Millisecond), alone: true, many: true},
}

// on runs the scenario on a server that was started for it.
func (s scenario) on(ctx context.Context, t *target) (_ []figure, err error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	return s.run(t)
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// work is a connection with one session.
type work struct {
	*client
	*session
}

// open opens n connections.
func open(t *target, n int) (opened []work, closeAll func(), err error) {
	opened = make([]work, n)
	errs := make([]error, n)
	each(n, func(i int) {
		c, err := dial(t)
		if err != nil {
			errs[i] = err
			return
		}
		opened[i].client = c
		opened[i].session, errs[i] = c.open()
	})
	closeAll = func() {
		each(n, func(i int) {
			if c := opened[i].client; c != nil {
				c.wire.close()
			}
		})
	}
	if err := errors.Join(errs...); err != nil {
		closeAll()
		return nil, nil, err
	}
	return opened, closeAll, nil
}

// each calls do for 0 to n-1, some at a time.
func each(n int, do func(i int)) {
	var wg sync.WaitGroup
	seats := make(chan struct{}, at1time)
	for i := range n {
		seats <- struct{}{}
		wg.Go(func() {
			do(i)
			<-seats
		})
	}
	wg.Wait()
}

// coldStart is from nothing to the first answer of an agent.
func coldStart(t *target) ([]figure, error) {
	all, closeAll, err := open(t, 1)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	if _, err := all[0].prompt(all[0].session, "echo"); err != nil {
		return nil, err
	}
	answered := time.Since(t.began)
	return []figure{{ms(t.ready), "ready-ms"}, {ms(answered), "answer-ms"}, {mega(t.usage().memory), "resident-MB"}}, nil
}

// again prompts on n connections, each again when it has its answer.
func again(n int, text string) func(t *target) ([]figure, error) {
	return func(t *target) ([]figure, error) {
		all, closeAll, err := open(t, n)
		if err != nil {
			return nil, err
		}
		defer closeAll()
		took := make([][]time.Duration, n)
		errs := make([]error, n)
		round := func(limit time.Duration) {
			var wg sync.WaitGroup
			end := time.Now().Add(limit)
			for i, w := range all {
				took[i] = took[i][:0]
				wg.Go(func() {
					for time.Now().Before(end) && errs[i] == nil {
						began := time.Now()
						answer, err := w.prompt(w.session, text)
						span := time.Since(began)
						if _, ns, ok := strings.Cut(string(answer), `"askedNs":`); ok {
							n, _ := strconv.Atoi(ns[:strings.IndexByte(ns, '}')])
							span = time.Duration(n)
						}
						took[i], errs[i] = append(took[i], span), err
					}
				})
			}
			wg.Wait()
		}
		round(measured / 5)
		before := t.usage()
		round(measured)
		now := t.usage()
		used := now.cpu - before.cpu
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		every := slices.Concat(took...)
		return []figure{
			{micro(now.hub-before.hub) / float64(len(every)), "hub-cpu-µs/op"},
			{micro(share(every, 50)), "p50-µs"},
			{micro(share(every, 99)), "p99-µs"},
			{micro(used) / float64(len(every)), "cpu-µs/op"},
			{float64(len(every)) / measured.Seconds(), "op/s"},
		}, nil
	}
}

// stream has n agents say updates of a size, as fast as they can when there is no pause.
func stream(n, size int, pause time.Duration) func(t *target) ([]figure, error) {
	return func(t *target) ([]figure, error) {
		all, closeAll, err := open(t, n)
		if err != nil {
			return nil, err
		}
		defer closeAll()
		if _, _, err := streamOnce(all, 200, min(size, 1<<10), 0); err != nil { // warms up
			return nil, err
		}
		count := max(int(measured/max(pause, 1)), 60)
		if pause == 0 {
			count = max(64<<20/(size+200)/n/16, 50)
			took, _, err := streamOnce(all, count, size, 0)
			if err != nil {
				return nil, err
			}
			count = min(int(float64(count)*float64(streamed)/float64(took)), 50*count)
		}
		before := t.usage()
		took, late, err := streamOnce(all, count, size, pause)
		now := t.usage()
		used := now.cpu - before.cpu
		if err != nil {
			return nil, err
		}
		updates := float64(n * count)
		if pause > 0 {
			return []figure{
				{micro(share(late, 50)), "p50-µs"},
				{micro(share(late, 99)), "p99-µs"},
				{micro(used) / updates, "cpu-µs/update"},
				{100 * float64(used) / float64(took), "cpu-%"},
			}, nil
		}
		return []figure{
			{updates / took.Seconds(), "updates/s"},
			{updates * float64(size) / 1e6 / took.Seconds(), "MB/s"},
			{micro(used) / updates, "cpu-µs/update"},
			{micro(now.hub-before.hub) / updates, "hub-cpu-µs/update"},
		}, nil
	}
}

// streamOnce has each connection's agent say count updates, and returns how long it took until
// all had arrived, and how late they were.
func streamOnce(all []work, count, size int, pause time.Duration) (took time.Duration, late []time.Duration, err error) {
	for _, w := range all {
		w.expect(count)
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	began := time.Now()
	for i, w := range all {
		wg.Go(func() {
			_, errs[i] = w.prompt(w.session, fmt.Sprintf("stream %d %d %d", count, size, pause.Microseconds()))
			for end := time.Now().Add(answerBound); errs[i] == nil && w.seen.Load() < int64(count); time.Sleep(100 * time.Microsecond) {
				if time.Now().After(end) { // over HTTP a bridge's answer may overtake updates
					errs[i] = fmt.Errorf("%d of %d updates came", w.seen.Load(), count)
				}
			}
		})
	}
	wg.Wait()
	took = time.Since(began)
	for i, w := range all {
		if n := w.wrong.Load(); n > 0 && errs[i] == nil {
			errs[i] = fmt.Errorf("%d updates were not the next one", n)
		}
		late = append(late, w.late...)
	}
	return took, late, errors.Join(errs...)
}

// idleConnections is what connections take on which nothing goes on, each with an agent.
func idleConnections(t *target) ([]figure, error) {
	base := t.usage()
	_, closeAll, err := open(t, idle)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	opened := t.usage()
	time.Sleep(still)
	now := t.usage()
	return []figure{
		{float64(now.memory-base.memory) / 1024 / idle, "KiB/conn"},
		{micro(opened.cpu-base.cpu) / idle, "cpu-µs/open"},
		{ms(now.cpu-opened.cpu) / still.Seconds(), "idle-cpu-ms/s"},
	}, nil
}

// share returns the value that so many of a hundred are not above.
func share(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)*percent/100, len(all)-1)]
}

func ms(d time.Duration) float64    { return float64(d) / float64(time.Millisecond) }
func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func mega(bytes int) float64        { return float64(bytes) / (1 << 20) }
