// A handler of services: it bridges ports. `handler SOCKET TYPE`, with PROTO_PATH as the folder of `holdfast/handler.proto`.
//
// It reads the protocol when it starts, and says and hears messages in their JSON form, so nothing is generated.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/jhump/protoreflect/desc"
	"github.com/jhump/protoreflect/desc/protoparse"
	"github.com/jhump/protoreflect/dynamic"
	"github.com/jhump/protoreflect/dynamic/grpcdynamic"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

type object = map[string]any

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: handler SOCKET TYPE")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// handler is one attached handler, with the results of its actions by their identifiers.
type handler struct {
	stream  *grpcdynamic.BidiStream
	message *desc.MessageDescriptor
	results map[string]string
}

func run(socket, service string) error {
	parser := protoparse.Parser{ImportPaths: []string{os.Getenv("PROTO_PATH")}}
	files, err := parser.ParseFiles("holdfast/handler.proto")
	if err != nil {
		return err
	}
	attach := files[0].FindService("holdfast.services.v1.Handler").FindMethodByName("Attach")
	connection, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	stream, err := grpcdynamic.NewStub(connection).InvokeRpcBidiStream(context.Background(), attach)
	if err != nil {
		return err
	}
	h := handler{stream, attach.GetInputType(), map[string]string{}}
	serves := object{"type": service, "calls": []object{{"component": "*", "state": "*", "phase": "PHASE_CREATE"}}}
	if actions := strings.Fields(os.Getenv("ACTIONS")); len(actions) > 0 {
		serves = object{"type": service, "actions": actions}
	}
	if err := h.say("register", object{"name": service + "-handler", "types": []object{serves}}); err != nil {
		return err
	}
	for {
		heard, err := h.hear()
		if err != nil {
			return err
		}
		for kind, content := range heard {
			fmt.Println(kind, content)
			switch kind {
			case "ping":
				err = h.say("pong", object{})
			case "servicesCommit":
				err = h.work(content.(object))
			case "action":
				err = h.act(content.(object))
			case "queryAction":
				err = h.tell(content.(object)["id"].(string))
			case "actionRecorded":
				delete(h.results, content.(object)["id"].(string))
			}
			if err != nil {
				return err
			}
		}
	}
}

func (h handler) say(kind string, content object) error {
	text, err := json.Marshal(object{kind: content})
	if err != nil {
		return err
	}
	message := dynamic.NewMessage(h.message)
	if err := message.UnmarshalJSON(text); err != nil {
		return err
	}
	return h.stream.SendMsg(message)
}

func (h handler) hear() (object, error) {
	message, err := h.stream.RecvMsg()
	if err != nil {
		return nil, err
	}
	text, err := message.(*dynamic.Message).MarshalJSON()
	if err != nil {
		return nil, err
	}
	var heard object
	return heard, json.Unmarshal(text, &heard)
}

// act carries an action out: its result has its parameters.
func (h handler) act(action object) error {
	id := action["id"].(string)
	if err := h.say("actionAccepted", object{"id": id}); err != nil {
		return err
	}
	h.results[id] = action["params"].(string)
	return h.say("actionResult", object{"id": id, "json": h.results[id]})
}

// tell says how far an action is.
func (h handler) tell(id string) error {
	if result, is := h.results[id]; is {
		return h.say("actionStatus", object{"id": id, "progress": "ACTION_PROGRESS_ENDED", "json": result})
	}
	return h.say("actionStatus", object{"id": id, "progress": "ACTION_PROGRESS_NEVER_SEEN"})
}

// work bridges the port of each instance.
func (h handler) work(commit object) error {
	var served []object
	for _, each := range commit["calls"].([]any) {
		call := each.(object)
		var params struct{ Bridge, Port string }
		if err := json.Unmarshal([]byte(call["params"].(string)), &params); err != nil {
			return err
		}
		// Zero is left out in JSON.
		number, _ := call["call"].(float64)
		lines := fmt.Sprintf("interface %s\n  type bridge\ninterface %s\n  enabled true\n  master %s\n", params.Bridge, params.Port, params.Bridge)
		if err := h.say("edit", object{"tid": commit["tid"], "call": number, "text": lines}); err != nil {
			return err
		}
		served = append(served, object{"call": number})
	}
	return h.say("done", object{"tid": commit["tid"], "served": served})
}
