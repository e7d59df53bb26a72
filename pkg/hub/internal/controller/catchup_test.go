package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Only an API server that cannot list metadata, or whose metadata does not fit what was read twice, is asked
// for whole objects: of a million works, they are gigabytes.
func TestListsWhole(t *testing.T) {
	_, malformed := readListing(strings.NewReader(`<html>`))
	_, incomplete := readListing(strings.NewReader(`{"metadata":{}}`))
	_, ended := readListing(strings.NewReader(`{"metadata":{"resourceVersion":"1"},"items":[{`))
	for name, test := range map[string]struct {
		err       error
		readSince bool
		want      bool
	}{
		"not acceptable":        {err: apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "get", schema.GroupResource{}, "", "", 0, false), want: true},
		"media type":            {err: apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "get", schema.GroupResource{}, "", "", 0, false), want: true},
		"no JSON":               {err: malformed, want: true},
		"another JSON":          {err: incomplete, want: true},
		"contradiction":         {err: fmt.Errorf("%w: older", errWrongHistory)},
		"the same after a read": {err: fmt.Errorf("%w: older", errWrongHistory), readSince: true, want: true},
		"a timeout after one":   {err: context.DeadlineExceeded, readSince: true},
		"cut off":               {err: ended},
		"stalled":               {err: errStalled},
		"timeout":               {err: context.DeadlineExceeded},
		"closed":                {err: io.ErrUnexpectedEOF},
		"busy":                  {err: apierrors.NewTooManyRequestsError("wait")},
		"forbidden":             {err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))},
	} {
		if test.err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := listsWhole(fmt.Errorf("list: %w", test.err), test.readSince); got != test.want {
			t.Errorf("%s: after %v, whole objects are listed: %v, want %v", name, test.err, got, test.want)
		}
	}
}

// A read that takes long is given longer each time, until it ends.
func TestNextPatience(t *testing.T) {
	patience := watchPatience
	for _, want := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute} {
		if patience = nextPatience(patience); patience != want {
			t.Errorf("%v, want %v", patience, want)
		}
	}
	for range 10 {
		patience = nextPatience(patience)
	}
	if patience != maxReadPatience {
		t.Errorf("%v, want %v", patience, maxReadPatience)
	}
}

// slowList brings a list of n objects, one each 20 seconds, and then nothing for ever if it stalls.
type slowList struct {
	done   <-chan struct{} // ends a read
	n      int
	stalls bool
}

func (s *slowList) Read(p []byte) (int, error) {
	wait, text := 20*time.Second, `{"metadata":{"name":"a","resourceVersion":"1"}},`
	switch s.n--; {
	case s.n == -1 && s.stalls:
		wait = 24 * time.Hour
	case s.n == -1:
		text = `{"metadata":{"name":"z","resourceVersion":"2"}}]}`
	case s.n < -1:
		return 0, io.EOF
	}
	select {
	case <-time.After(wait):
	case <-s.done:
		return 0, context.Canceled
	}
	return copy(p, text), nil
}

// A list may take as long as it goes on, and not longer.
func TestSlowList(t *testing.T) {
	for name, stalls := range map[string]bool{"slow": false, "stalled": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, progress, stop := whileAlive(t.Context(), listPatience)
				defer stop()
				body := io.MultiReader(strings.NewReader(`{"metadata":{"resourceVersion":"9"},"items":[`), &slowList{ctx.Done(), 30, stalls})
				l, err := readListing(progressReader{body, progress})
				switch {
				case stalls && (err == nil || !errors.Is(context.Cause(ctx), errStalled)):
					t.Errorf("read %+v, %v; the context ended with %v", l, err, context.Cause(ctx))
				case !stalls && (err != nil || len(l.objects) != 2):
					t.Errorf("read %+v, %v", l, err)
				}
			})
		})
	}
}
