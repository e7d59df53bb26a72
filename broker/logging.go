package broker

import (
	"context"
	"log/slog"
)

// mochiHandler handles the log records of mochi-mqtt. It removes attributes that hold whole
// packets, with payload and password, and logs records of level info at level debug.
type mochiHandler struct{ slog.Handler }

func (h mochiHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, mochiLevel(level))
}

func (h mochiHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, mochiLevel(r.Level), r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "pk" && a.Key != "packet" {
			out.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h mochiHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return mochiHandler{h.Handler.WithAttrs(attrs)}
}

func (h mochiHandler) WithGroup(name string) slog.Handler {
	return mochiHandler{h.Handler.WithGroup(name)}
}

func mochiLevel(level slog.Level) slog.Level {
	if level <= slog.LevelInfo {
		return slog.LevelDebug
	}
	return level
}
