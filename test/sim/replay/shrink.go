package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shrinker leaves out decisions of a seed, as long as it still fails.
type shrinker struct {
	run    func(context.Context, trial) (*result, error)
	seed   uint64
	kind   string     // of what is wrong
	works  []string   // that it is about, as cluster/name
	all    []decision // of the whole run
	kept   []decision
	trials int
	began  time.Time
}

func newShrinker(run func(context.Context, trial) (*result, error), seed uint64, first *result) *shrinker {
	s := &shrinker{run: run, seed: seed, kind: kindOf(first.Wrong[0].Text), works: first.Wrong[0].Works, all: first.Decisions, began: time.Now()}
	s.kept = slices.DeleteFunc(slices.Clone(s.all), func(d decision) bool { return d.LeftOut })
	return s
}

// shrink looks for few decisions of t with which the same is wrong. It tells their story.
func shrink(ctx context.Context, m *machine, t trial, dir string) error {
	first, err := m.run(ctx, t, false, "")
	if err != nil {
		return err
	}
	if len(first.Wrong) == 0 {
		return fmt.Errorf("%s does not fail: there is nothing to shrink", t)
	}
	s := newShrinker(func(ctx context.Context, t trial) (*result, error) { return m.run(ctx, t, false, "") }, t.seed, first)
	fmt.Printf("%s: %s\nIt has %s. Which can be left out?\n", first.Wrong[0].At.UTC().Format("15:04:05.000"), first.Wrong[0].Text, count(s.kept))
	if err := s.search(ctx, first.Wrong[0].At); err != nil {
		return err
	}
	smallest := trial{s.seed, s.leftOut(s.kept)}
	last, err := m.run(ctx, smallest, true, dir)
	if err != nil {
		return err
	}
	fmt.Print(last.output)
	fmt.Printf("\nAfter %d runs in %s, %s remain:\n", s.trials, time.Since(s.began).Round(time.Second), count(s.kept))
	for _, d := range s.kept {
		fmt.Println(strings.TrimRight(fmt.Sprintf("  %s  %s %s", d.At.UTC().Format("15:04:05.000"), d.Name, strings.Join(d.Works, ", ")), " "))
	}
	fmt.Printf("Again: make simulate SEEDS=1 %s\n", smallest)
	return nil
}

// search leaves out what comes later than at, what is about other works, all faults, then each kind of fault, each
// work, and then ever smaller parts.
func (s *shrinker) search(ctx context.Context, at time.Time) error {
	for _, g := range []group{
		{"what comes later", func(d decision) bool { return d.At.After(at) }},
		{"changes of other works", func(d decision) bool {
			return !d.Fault && len(s.works) > 0 && !slices.ContainsFunc(d.Works, func(work string) bool { return slices.Contains(s.works, work) })
		}},
		{"all faults", func(d decision) bool { return d.Fault }},
	} {
		if err := s.without(ctx, []group{g}); err != nil {
			return err
		}
	}
	if err := s.without(ctx, s.groups()); err != nil {
		return err
	}
	for size := (len(s.kept) + 1) / 2; size > 0; size /= 2 {
		for again := true; again; {
			before := len(s.kept)
			if err := s.without(ctx, s.parts(size)); err != nil {
				return err
			}
			again = size == 1 && len(s.kept) < before
		}
	}
	return nil
}

// group is what is left out together.
type group struct {
	name string
	has  func(decision) bool
}

// groups returns each kind of fault, and each work.
func (s *shrinker) groups() []group {
	var groups []group
	seen := map[string]bool{}
	for _, d := range s.kept {
		if d.Fault && !seen[d.Name] {
			seen[d.Name] = true
			groups = append(groups, group{"all of " + d.Name, func(other decision) bool { return other.Name == d.Name }})
		}
		for _, work := range d.Works {
			if !seen[work] {
				seen[work] = true
				groups = append(groups, group{"work " + work, func(other decision) bool { return slices.Contains(other.Works, work) }})
			}
		}
	}
	return groups
}

// parts cuts what is kept into parts of a size; the last come first.
func (s *shrinker) parts(size int) []group {
	var groups []group
	for part := range slices.Chunk(s.kept, size) {
		first, last := part[0].Number, part[len(part)-1].Number
		groups = append(groups, group{fmt.Sprintf("decisions %d to %d", first, last), func(d decision) bool { return d.Number >= first && d.Number <= last }})
	}
	slices.Reverse(groups)
	return groups
}

// without leaves out each group without which the run still fails.
func (s *shrinker) without(ctx context.Context, groups []group) error {
	for len(groups) > 0 {
		n := min(len(groups), runtime.GOMAXPROCS(0))
		success, err := s.try(ctx, groups[:n])
		if err != nil {
			return err
		}
		if success < 0 {
			groups = groups[n:]
			continue
		}
		s.kept = slices.DeleteFunc(slices.Clone(s.kept), groups[success].has)
		fmt.Printf("%5s  without %s it fails, too: %s remain\n", time.Since(s.began).Round(time.Second), groups[success].name, count(s.kept))
		groups = append(slices.Clone(groups[:success]), groups[success+1:]...)
		groups = groups[success:] // those before are needed
	}
	return nil
}

// try runs without each of some groups, at the same time. It returns the first without which the same is wrong, -1 if
// there is none.
func (s *shrinker) try(ctx context.Context, groups []group) (int, error) {
	fails, errs := make([]bool, len(groups)), make([]error, len(groups))
	done := make(chan struct{})
	started := 0
	for i, g := range groups {
		rest := slices.DeleteFunc(slices.Clone(s.kept), g.has)
		if len(rest) == len(s.kept) {
			continue // nothing of it is left
		}
		started++
		s.trials++
		go func() {
			defer func() { done <- struct{}{} }()
			result, err := s.run(ctx, trial{s.seed, s.leftOut(rest)})
			errs[i] = err
			fails[i] = err == nil && slices.ContainsFunc(result.Wrong, func(w wrong) bool { return kindOf(w.Text) == s.kind })
		}()
	}
	for range started {
		<-done
	}
	return slices.Index(fails, true), errors.Join(errs...)
}

// leftOut returns the numbers of all decisions but those that are kept.
func (s *shrinker) leftOut(kept []decision) string {
	keep := map[int]bool{}
	for _, d := range kept {
		keep[d.Number] = true
	}
	var parts []string
	for i := 0; i < len(s.all); i++ {
		if keep[s.all[i].Number] {
			continue
		}
		first := s.all[i].Number
		for i+1 < len(s.all) && !keep[s.all[i+1].Number] {
			i++
		}
		part := strconv.Itoa(first)
		if last := s.all[i].Number; last > first {
			part += "-" + strconv.Itoa(last)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

func count(decisions []decision) string {
	faults := 0
	for _, d := range decisions {
		if d.Fault {
			faults++
		}
	}
	return fmt.Sprintf("%s and %s of people", plural(faults, "fault"), plural(len(decisions)-faults, "change"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

var names = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|\d+`)

// kindOf returns what is wrong without numbers, and without the details after a colon.
func kindOf(text string) string {
	text = names.ReplaceAllString(text, "#")
	text, _, _ = strings.Cut(text, ": [")
	return text
}
