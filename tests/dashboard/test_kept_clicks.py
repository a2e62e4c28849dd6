"""A press that reached the server is heard exactly once, whatever becomes of the run it asked for."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import streamlit as st
from starlette.testclient import TestClient, WebSocketTestSession
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.starlette import App

from dashboard.web.kept_clicks import Presses, keep_clicks
