package fairqueue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/runtime/fairqueue"
)

func TestTurns(t *testing.T) {
	for _, c := range []struct{ pushed, want string }{
		{"a1 a2 a3", "a1 a2 a3"},
		{"a1 a2 a3 b1", "a1 b1 a2 a3"},
		{"a1 a2 b1 b2 c1", "a1 b1 c1 a2 b2"},
	} {
		q := fairqueue.New(func(key string) byte { return key[0] })
		for key := range strings.FieldsSeq(c.pushed) {
			q.Push(key)
		}
		var got []string
		for q.Len() > 0 {
			got = append(got, q.Pop())
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: got %s, want %s", c.pushed, text, c.want)
		}
	}
}

// TestNested: groups of groups take turns, and in each of them its groups.
func TestNested(t *testing.T) {
	for _, c := range []struct{ pushed, want string }{
		{"xa1 xa2 xa3", "xa1 xa2 xa3"},
		{"xa1 xa2 xb1 xc1 ya1", "xa1 ya1 xb1 xc1 xa2"},
		{"xa1 xb1 ya1 ya2 yb1 za1", "xa1 ya1 za1 xb1 yb1 ya2"},
	} {
		q := fairqueue.NewNested(func(key string) byte { return key[0] }, func(key string) byte { return key[1] })
		for range 2 { // it is as new when it is empty
			for key := range strings.FieldsSeq(c.pushed) {
				q.Push(key)
			}
			var got []string
			for q.Len() > 0 {
				got = append(got, q.Pop())
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%s: got %s, want %s", c.pushed, text, c.want)
			}
		}
	}
}

// TestRemove: what is removed leaves no trace, and of too many, the oldest of the busiest inner group goes.
func TestRemove(t *testing.T) {
	q := fairqueue.NewNested(func(key string) byte { return key[0] }, func(key string) byte { return key[1] })
	for key := range strings.FieldsSeq("ax1 ax2 ax3 ay1 bx1 cz1") {
		q.Push(key)
	}
	if got := q.PopLongest('a'); got != "ax1" || q.Len() != 5 || q.LenOf('a') != 3 {
		t.Errorf("%s is the first of the longest of %d, %d", got, q.Len(), q.LenOf('a'))
	}
	if q.Remove("ax1") || q.Remove("dx1") || !q.Remove("ax2") || !q.Remove("cz1") {
		t.Error("Remove does not report what was there")
	}
	q.Push("ax4")
	q.Push("cz2")
	var got []string
	for q.Len() > 0 {
		got = append(got, q.Pop())
	}
	if text := strings.Join(got, " "); text != "ax3 bx1 cz2 ay1 ax4" {
		t.Errorf("got %s", text)
	}
}

// TestOneWaitsForOneOfEach: in a work queue, a key waits for one key of the group that has thousands.
func TestOneWaitsForOneOfEach(t *testing.T) {
	q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: fairqueue.New(func(key string) byte { return key[0] })})
	for i := range 5000 {
		q.Add(fmt.Sprint("a", i))
	}
	q.Add("b")
	for range 2 {
		key, _ := q.Get()
		q.Done(key)
		if key == "b" {
			return
		}
	}
	t.Error("b waits for more than one key")
}

// TestLine: values of one group keep their order, another one waits for one of them, and a full line has the sender wait.
func TestLine(t *testing.T) {
	const length = 4
	line := fairqueue.NewLine(length, func(v string) byte { return v[0] })
	for v := range strings.FieldsSeq("a1 a2 a3 b1") {
		line.Add(v)
	}
	added := make(chan struct{})
	go func() {
		line.Add("c1")
		close(added)
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	line.Run(ctx, func(_ context.Context, v string) {
		if len(got) == 0 {
			<-added
		}
		if got = append(got, v); len(got) == length+1 {
			cancel()
		}
	})
	if text := strings.Join(got, " "); text != "a1 b1 c1 a2 a3" && text != "a1 b1 a2 c1 a3" {
		t.Errorf("got %s", text)
	}
	line.Add("d1") // nobody takes it, and nobody waits
}
