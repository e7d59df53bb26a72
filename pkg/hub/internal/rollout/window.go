package rollout

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the image of the hub has no database of time zones

	"github.com/robfig/cron/v3"

	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
)

// maxWindow is the longest window.
const maxWindow = 7 * 24 * time.Hour

// window is a time that comes again, in the zone of each cluster.
type window struct {
	schedule *cron.SpecSchedule
	duration time.Duration
	zone     *time.Location // of clusters without the claim; nil: it does not open for them
	claim    string         // whose value is the name of the zone; empty: zone
}

func parseWindow(from workwirev1alpha1.RolloutWindow) (window, error) {
	w := window{duration: from.Duration.Duration, zone: time.UTC, claim: from.TimeZoneClaim}
	var errSchedule, errDuration, errZone error
	w.schedule, errSchedule = parseSchedule(from.Schedule)
	if w.duration <= 0 || w.duration > maxWindow {
		errDuration = fmt.Errorf("duration is %s: must be more than 0 and at most %s", w.duration, maxWindow)
	}
	switch {
	case from.TimeZone != "":
		if w.zone = loadZone(from.TimeZone); w.zone == nil {
			errZone = fmt.Errorf("timeZone is %q: must be the name of a time zone, such as Europe/Berlin", from.TimeZone)
		}
	case w.claim != "":
		w.zone = nil
	}
	return w, errors.Join(errSchedule, errDuration, errZone)
}

// parseSchedule parses the schedule of a CronJob: no zone in it, and no interval, which has no beginning.
func parseSchedule(text string) (*cron.SpecSchedule, error) {
	if strings.Contains(text, "=") {
		return nil, fmt.Errorf("schedule is %q: the time zone is a field of its own", text)
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Errorf("schedule is %q: %w", text, err)
	}
	schedule, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("schedule is %q: must name times, such as 0 22 * * 1-5", text)
	}
	return schedule, nil
}

// loadZone returns a time zone; nil if there is none with the name. Local, the zone of the hub, is none.
func loadZone(name string) *time.Location {
	if name == "" || name == "Local" || len(name) > 64 {
		return nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil
	}
	return zone
}

// opening is the state of windows for clusters of one time zone.
type opening struct {
	open bool
	// change is when an open one closes, or a closed one opens; zero if never.
	change time.Time
	// end is when one that opens at change closes again.
	end time.Time
}

// at returns the state of the window. It opens at a time of its schedule and is open for its duration; where windows
// overlap, change may be when it closes and is open again.
func (w window) at(now time.Time, zone *time.Location) opening {
	if zone == nil {
		return opening{}
	}
	began := w.next(now.Add(-w.duration), zone) // the first after it: if it has come, it lasts
	if !began.IsZero() && !began.After(now) {
		return opening{open: true, change: began.Add(w.duration).UTC()}
	}
	return opening{change: began.UTC(), end: began.Add(w.duration).UTC()}
}

// next returns the first time of the schedule after a time, zero if there is none in five years. Where the clocks of a zone skip
// midnight, cron passes over the day: it is asked about the times from one change of the clocks to the next, which have one offset.
func (w window) next(after time.Time, zone *time.Location) time.Time {
	for from, limit := after, after.AddDate(5, 0, 0); from.Before(limit); {
		name, offset := from.In(zone).Zone()
		at := w.schedule.Next(after.In(time.FixedZone(name, offset)))
		_, end := from.In(zone).ZoneBounds()
		if at.IsZero() || end.IsZero() || at.Before(end) {
			return at
		}
		from, after = end, end.Add(-time.Nanosecond) // it may be at the end itself
	}
	return time.Time{}
}

// openings caches the states of windows for the clusters of a decision.
type openings struct {
	windows []window
	now     time.Time
	zones   map[string]*time.Location
	known   map[openingKey]opening
}

type openingKey struct {
	window int
	zone   string // empty: that of the window
}

func newOpenings(windows []window, now time.Time) *openings {
	return &openings{windows: windows, now: now, zones: make(map[string]*time.Location), known: make(map[openingKey]opening)}
}

// of returns whether some window is open for a cluster.
func (o *openings) of(site Site) opening {
	if len(o.windows) == 0 {
		return opening{open: true}
	}
	var all opening
	for i, w := range o.windows {
		state := o.window(i, w, site)
		switch {
		case state.open && (!all.open || state.change.After(all.change)):
			all = state
		case !state.open && !all.open && !state.change.IsZero() && (all.change.IsZero() || state.change.Before(all.change)):
			all = state
		}
	}
	return all
}

func (o *openings) window(i int, w window, site Site) opening {
	key := openingKey{window: i}
	if w.claim != "" && site.Claim != nil {
		key.zone = site.Claim(w.claim)
	}
	state, ok := o.known[key]
	if ok {
		return state
	}
	zone := w.zone
	if key.zone != "" {
		loaded, known := o.zones[key.zone]
		if !known {
			loaded = loadZone(key.zone)
			o.zones[key.zone] = loaded
		}
		if loaded != nil {
			zone = loaded
		}
	}
	state = w.at(o.now, zone)
	o.known[key] = state
	return state
}
