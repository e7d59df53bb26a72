package restmapper

import "time"

// Discovered returns how many groups and versions are known by discovery.
func (m *Mapper) Discovered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.discovered)
}

// SetNow replaces the clock. Call it before anything else.
func (m *Mapper) SetNow(now func() time.Time) { m.now = now }
