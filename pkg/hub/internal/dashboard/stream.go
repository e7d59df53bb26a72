package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits of streams. Each costs a look a second at the snapshot, or at the counter of the feed.
const (
	maxStreams       = 200
	maxViewerStreams = 10
	streamPeriod     = time.Second
	heartbeat        = 15 * time.Second
	streamWrite      = 10 * time.Second // how long a write may take
)

// streams counts the streams, and ends them.
type streams struct {
	metrics *metrics
	ended   chan struct{} // closed when all must end
	end     func()

	mu       sync.Mutex
	total    int            // guarded by mu
	byViewer map[string]int // guarded by mu: by key of the viewer
}

func newStreams(m *metrics) *streams {
	s := &streams{metrics: m, ended: make(chan struct{}), byViewer: map[string]int{}}
	s.end = sync.OnceFunc(func() { close(s.ended) })
	return s
}

// begin reports whether a viewer may have one more stream. end must be called for each that may.
func (s *streams) begin(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= maxStreams || s.byViewer[key] >= maxViewerStreams {
		return false
	}
	s.total++
	s.byViewer[key]++
	s.metrics.streams.Set(float64(s.total))
	return true
}

func (s *streams) finish(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.byViewer[key]--; s.byViewer[key] == 0 {
		delete(s.byViewer, key)
	}
	s.metrics.streams.Set(float64(s.total))
}

// stream sends events until the viewer leaves, the token is no longer valid, or the dashboard ends:
// "changed" when there is another snapshot than the page's, "rows" with new changes for the live
// page, and "end" when the viewer must sign in again.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request) {
	who, err := d.auth.viewer(r.Context(), d.tokenOf(r, false))
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, errUnauthenticated) {
			status = http.StatusUnauthorized
		}
		http.Error(w, "no stream: sign in", status)
		return
	}
	if !d.streams.begin(who.key) {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many pages follow changes", http.StatusServiceUnavailable)
		return
	}
	defer d.streams.finish(who.key)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	number := func(key string) uint64 { n, _ := strconv.ParseUint(r.URL.Query().Get(key), 10, 64); return n }
	s := &stream{
		d: d, r: r, viewer: who, w: w, control: http.NewResponseController(w),
		version: number("version"), feed: number("feed"), rows: r.URL.Query().Has("feed"),
	}
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil { // it was connected before
		s.feed = last
	}
	if s.write("retry: 3000\n\n") == nil {
		s.run(r.Context())
	}
}

// stream is what one page has been sent.
type stream struct {
	d       *Dashboard
	r       *http.Request
	viewer  viewer
	w       http.ResponseWriter
	control *http.ResponseController
	version uint64
	feed    uint64
	rows    bool // the page shows the feed
	sent    time.Time
}

func (s *stream) run(ctx context.Context) {
	ticker := time.NewTicker(streamPeriod)
	defer ticker.Stop()
	for {
		if err := s.send(ctx); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.d.streams.ended:
			return
		case <-ticker.C:
		}
	}
}

// send sends what is new. It returns an error when the stream must end.
func (s *stream) send(ctx context.Context) error {
	who, err := s.d.auth.viewer(ctx, s.d.tokenOf(s.r, false))
	if err == nil && who.key != s.viewer.key {
		err = errUnauthenticated
	}
	if errors.Is(err, errUnauthenticated) {
		_ = s.write("event: end\ndata: signed out\n\n")
	}
	if err != nil {
		return err
	}
	if s.rows {
		return s.sendRows(ctx)
	}
	// A change that the snapshot has not seen yet is told with the next one: the page would get this one again.
	if version := s.d.fleet.snapshot().version; version != s.version {
		s.version = version
		return s.write(fmt.Sprintf("event: changed\ndata: %d\n\n", version))
	}
	return s.beat()
}

// sendRows sends the new changes of the feed as rows.
func (s *stream) sendRows(ctx context.Context) error {
	if s.d.feed.last() == s.feed {
		return s.beat()
	}
	visit := &visit{d: s.d, r: s.r.WithContext(ctx), viewer: s.viewer, snapshot: s.d.fleet.snapshot()}
	sees, err := visit.sees()
	if err != nil {
		return err
	}
	changes, last := s.d.feed.since(s.feed, sees)
	s.feed = last
	if len(changes) == 0 {
		return s.beat()
	}
	var b bytes.Buffer
	if err := s.d.pages.templates["rows"].ExecuteTemplate(&b, "rows", changes); err != nil {
		return err
	}
	return s.write(fmt.Sprintf("id: %d\nevent: rows\ndata: %s\n\n", last, strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", "\ndata: ")))
}

// beat keeps the connection alive, and notices that it is not.
func (s *stream) beat() error {
	if s.d.cfg.Now().Sub(s.sent) < heartbeat {
		return nil
	}
	return s.write(": nothing new\n\n")
}

func (s *stream) write(text string) error {
	s.sent = s.d.cfg.Now()
	_ = s.control.SetWriteDeadline(time.Now().Add(streamWrite)) // fails where there are no deadlines
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}
