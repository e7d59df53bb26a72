package broker

import (
	"sync/atomic"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// TestSending: what is there at a wake is taken, by one goroutine at a time, however many wake it, and once the end was waited
// for, none takes anything.
func TestSending(t *testing.T) {
	const wakers = 4
	var s sending
	var there, running atomic.Int64
	taken := make(chan struct{}, wakers)
	send := func() {
		for rested := false; !rested; rested = s.rest() {
			if running.Add(1) != 1 {
				t.Error("two goroutines take at the same time")
			}
			for range there.Swap(0) {
				taken <- struct{}{}
			}
			running.Add(-1)
		}
	}
	put := func() {
		there.Add(1)
		if s.wake() {
			go send()
		}
	}
	if put(); s.running || there.Load() != 1 {
		t.Error("it takes before it is open")
	}
	s.open()
	go send()
	kit.Receive(t, "what was there before it was open", taken)
	for range 5000 {
		for range wakers {
			go put()
		}
		for range wakers {
			kit.Receive(t, "what was put there", taken)
		}
	}
	if ended := s.end(); ended != nil {
		kit.Receive(t, "the end of the last goroutine", ended)
	}
	put()
	if s.running || there.Load() != 1 {
		t.Errorf("after the end, running is %v, and %d are left of 1", s.running, there.Load())
	}
}

// TestSendingStopped: nobody starts a goroutine, or waits for one, after the one that ran has stopped for good.
func TestSendingStopped(t *testing.T) {
	var s sending
	if s.open(); s.wake() {
		t.Error("a second goroutine is started")
	}
	if s.rest() || !s.rest() {
		t.Error("the goroutine rests although it was woken, or does not although it was not")
	}
	if !s.wake() || s.wake() {
		t.Error("the first wake does not start a goroutine, or the second one does")
	}
	s.stop()
	if s.wake() || s.end() != nil {
		t.Error("a goroutine is started, or waited for, after the stop")
	}
}
