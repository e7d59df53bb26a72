package restmapper

// Discovered returns how many groups and versions are known by discovery.
func (m *Mapper) Discovered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.discovered)
}
