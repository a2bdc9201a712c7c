from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("agent_sessions", "0003_working_state")]

    operations = []
