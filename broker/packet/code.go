package packet

// Reason codes of MQTT 5 that the broker sends or receives.
const (
	Success             = 0x00
	DisconnectWithWill  = 0x04
	NoMatchingSubs      = 0x10
	NoSubscription      = 0x11
	Unspecified         = 0x80
	Malformed           = 0x81
	ProtocolError       = 0x82
	ImplementationError = 0x83
	UnsupportedVersion  = 0x84
	BadClientID         = 0x85
	BadCredentials      = 0x86
	NotAuthorized       = 0x87
	ServerBusy          = 0x89
	ServerShuttingDown  = 0x8B
	BadAuthMethod       = 0x8C
	KeepAliveTimeout    = 0x8D
	SessionTakenOver    = 0x8E
	BadTopicFilter      = 0x8F
	BadTopicName        = 0x90
	PacketIDInUse       = 0x91
	ReceiveMaximum      = 0x93
	BadTopicAlias       = 0x94
	TooLarge            = 0x95
	RateTooHigh         = 0x96
	QuotaExceeded       = 0x97
	AdministrativeEnd   = 0x98
	BadPayloadFormat    = 0x99
	RetainUnsupported   = 0x9A
	QoSUnsupported      = 0x9B
	UseAnotherServer    = 0x9C
	ServerMoved         = 0x9D
	SubIDsUnsupported   = 0xA1
)

// Error means that a client sent a packet that MQTT 5 or a limit of the broker forbids. It ends the
// connection.
type Error struct {
	Code byte   // reason code for the client
	Text string // what is wrong, for the client and the log
	// Reference names another server for the client; "" for none.
	Reference string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

func malformed(text string) *Error { return &Error{Code: Malformed, Text: text} }
func violation(text string) *Error { return &Error{Code: ProtocolError, Text: text} }
